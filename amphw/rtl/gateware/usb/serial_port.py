"""A USB device that is a serial port (CDC-ACM), made of the parts of luna.

An operating system's own driver makes a port of it, such as /dev/ttyACM0. Baud rates mean nothing here. Bytes
to the device wait with the host while there is no room for a whole packet of them, and bytes from it go out
in the next packet that the host asks for, once no more of them follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import DomainRenamer, Elaboratable, Module, ResetInserter, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from luna.gateware.usb.usb2.device import USBDevice
from luna.gateware.usb.usb2.endpoint import EndpointInterface
from luna.gateware.usb.usb2.endpoints.stream import USBStreamInEndpoint
from luna.gateware.usb.usb2.request import StallOnlyRequestHandler, USBRequestHandler
from usb_protocol.emitters import DeviceDescriptorCollection
from usb_protocol.emitters.descriptors import cdc
from usb_protocol.types import USBRequestType

from amphw.rtl.gateware.link.axi_stream import Packets
from amphw.rtl.gateware.link.framing import BYTE
from amphw.rtl.gateware.network.boxes import Inbox

VENDOR, PRODUCT = 0x1209, 0x0001
"""pid.codes' number for tests among oneself: whoever sells a board needs one of his own."""

NOTIFIES, DATA = 3, 4
"""Numbers of endpoints: of what a modem would notify, which is nothing here, and of bytes both ways."""

_COMMUNICATIONS, _ABSTRACT, _NO_COMMANDS = 0x02, 0x02, 0x00
"""Class, subclass and protocol. One with AT commands would have programs that look for modems talk to it."""


@dataclass(frozen=True)
class Speed:
    """packet: bytes in one of the endpoints of bytes. interval: how often the other endpoint is asked, as its
    descriptor says it. quiet: cycles of the clock `usb` without a further byte after which a packet ends
    short: a microsecond, in which every circuit has made the next word's bytes if it has the word."""

    packet: int
    interval: int
    quiet: int


FULL = Speed(packet=64, interval=255, quiet=48)
HIGH = Speed(packet=512, interval=16, quiet=60)


class LineRequests(USBRequestHandler):  # type: ignore[misc]
    """What hosts say about the line of a serial port. opened: whether somebody has it open (DTR).

    Its rate and form are taken, and change nothing.
    """

    SET_LINE_CODING, SET_CONTROL_LINE_STATE = 0x20, 0x22

    def __init__(self) -> None:
        super().__init__()
        self.opened = Signal()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        interface, setup = self.interface, self.interface.setup
        with m.If(setup.type == USBRequestType.CLASS):
            with m.Switch(setup.request):
                with m.Case(self.SET_LINE_CODING):
                    m.d.comb += interface.claim.eq(1)
                    with m.If(interface.rx_ready_for_response):
                        m.d.comb += interface.handshakes_out.ack.eq(1)
                    with m.If(interface.status_requested):
                        m.d.comb += self.send_zlp()
                with m.Case(self.SET_CONTROL_LINE_STATE):
                    m.d.comb += interface.claim.eq(1)
                    with m.If(interface.status_requested):
                        m.d.comb += self.send_zlp()
                        m.d.usb += self.opened.eq(setup.value[0])
        return m


def descriptors(speed: Speed, product: str, serial: str) -> DeviceDescriptorCollection:
    """What the device says of itself. product, serial: texts that people see."""
    made = DeviceDescriptorCollection()
    with made.DeviceDescriptor() as device:
        device.bDeviceClass = _COMMUNICATIONS
        device.idVendor, device.idProduct = VENDOR, PRODUCT
        device.iManufacturer, device.iProduct, device.iSerialNumber = "amphw", product, serial
        device.bNumConfigurations = 1
    with made.ConfigurationDescriptor() as configuration:
        with configuration.InterfaceDescriptor() as control:
            control.bInterfaceNumber = 0
            control.bInterfaceClass, control.bInterfaceSubclass = _COMMUNICATIONS, _ABSTRACT
            control.bInterfaceProtocol = _NO_COMMANDS
            calls, line = (
                cdc.CallManagementFunctionalDescriptorEmitter(),
                cdc.ACMFunctionalDescriptorEmitter(),
            )
            union = cdc.UnionFunctionalDescriptorEmitter()
            calls.bDataInterface = 1
            line.bmCapabilities = 0x02  # its state can be set, which says whether somebody has it open
            union.bControlInterface, union.bSubordinateInterface0 = 0, 1
            for each in (cdc.HeaderDescriptorEmitter(), calls, line, union):
                control.add_subordinate_descriptor(each)
            with control.EndpointDescriptor() as endpoint:
                endpoint.bEndpointAddress = 0x80 | NOTIFIES
                endpoint.bmAttributes = 0x03
                endpoint.wMaxPacketSize, endpoint.bInterval = 8, speed.interval
        with configuration.InterfaceDescriptor() as data:
            data.bInterfaceNumber = 1
            data.bInterfaceClass = 0x0A
            for address in (0x80 | DATA, DATA):
                with data.EndpointDescriptor() as endpoint:
                    endpoint.bEndpointAddress = address
                    endpoint.wMaxPacketSize = speed.packet
    return made


class Outward(USBStreamInEndpoint):  # type: ignore[misc]
    """Bytes to the host. It begins anew with `anew`.

    luna counts the packets of an endpoint modulo two until its power goes. USB has both ends begin anew with
    each reset of the bus and each configuration; otherwise the first packet behind one may pass for a
    repetition of one before, be confirmed, and be lost.
    """

    def __init__(self, anew: Signal, packet: int) -> None:
        super().__init__(endpoint_number=DATA, max_packet_size=packet)
        self.anew = anew

    def elaborate(self, platform: Any) -> Any:
        return ResetInserter({"usb": self.anew})(super().elaborate(platform))


class Inward(Elaboratable):
    """Bytes from the host, `o`. It begins anew with `anew`.

    Whether a packet has room is decided when it is announced. luna's endpoint sees within a packet that there
    is none, has forgotten so by the time of the answer at full speed, and confirms what it has dropped.
    """

    def __init__(self, anew: Signal, packet: int) -> None:
        self.anew, self.packet = anew, packet
        self.interface = EndpointInterface()
        self.box = Inbox(4 * packet, 8)
        self.o = self.box.o

    def elaborate(self, platform: Any) -> Any:
        m = Module()
        m.submodules.box = DomainRenamer("usb")(self.box)
        box, given, tokens = self.box, self.interface, self.interface.tokenizer
        toggle, fits, count = Signal(), Signal(), Signal(range(4 * self.packet + 1))
        named, ours, answered, right, byte = (Signal() for _ in range(5))
        m.d.comb += [
            named.eq(tokens.endpoint == DATA),
            ours.eq(named & tokens.is_out),
            answered.eq(ours & given.rx_ready_for_response),
            right.eq(given.rx_pid_toggle == toggle),
            byte.eq(ours & given.rx.valid & given.rx.next & fits & right & (count != box.room)),
            box.begin.eq(tokens.new_token),
            box.put.eq(byte),
            box.word.eq(given.rx.payload),
            box.accept.eq(answered & right & fits),
            box.words.eq(count),
        ]
        m.d.usb += count.eq(count + byte)
        with m.If(tokens.new_token):
            m.d.usb += [count.eq(0), fits.eq(box.free >= self.packet)]
        with m.If(box.accept):
            m.d.usb += toggle.eq(~toggle)
        # One that comes again was taken before, and only its confirmation was lost.
        asked, says = named & tokens.is_ping & tokens.ready_for_response, given.handshakes_out
        m.d.comb += [
            says.ack.eq((answered & (fits | ~right)) | (asked & fits)),
            says.nak.eq((answered & right & ~fits) | (asked & ~fits)),
        ]
        return ResetInserter({"usb": self.anew})(m)


class Notifies(Elaboratable):
    """The endpoint that a modem would notify the host over, if it rang: there is never anything."""

    def __init__(self) -> None:
        self.interface = EndpointInterface()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        tokens = self.interface.tokenizer
        asked = tokens.is_in & tokens.ready_for_response & (tokens.endpoint == NOTIFIES)
        m.d.comb += self.interface.handshakes_out.nak.eq(asked)
        return m


class UsbSerialPort(wiring.Component):
    """The device, in the clock `usb`. bus: a PHY's ULPI or UTMI, as luna takes them.

    i: bytes to the host; o: from it. While nobody has the port open, bytes to the host are dropped: a serial
    line does not keep them either, and so a circuit does not wait for a host that has gone.
    """

    def __init__(self, bus: Any, speed: Speed, product: str, serial: str) -> None:
        self.bus, self.speed, self.product, self.serial = bus, speed, product, serial
        super().__init__({"i": In(BYTE), "o": Out(BYTE)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.device = device = USBDevice(bus=self.bus, handle_clocking=False)
        # luna counts at 60 MHz, or at 12; at 48 what it waits for takes a quarter longer, as it may.
        device.data_clock = 60e6
        made = descriptors(self.speed, self.product, self.serial)
        control = device.add_standard_control_endpoint(made, avoid_blockram=False)
        anew = Signal()
        m.d.comb += anew.eq(device.reset_detected | control.interface.config_changed)
        line = LineRequests()
        control.add_request_handler(ResetInserter({"usb": anew})(line))
        control.add_request_handler(StallOnlyRequestHandler(_of_nobody))
        inward, outward = Inward(anew, self.speed.packet), Outward(anew, self.speed.packet)
        for endpoint in (Notifies(), outward, inward):
            device.add_endpoint(endpoint)
        # luna ends a packet short where a stream ends, and puts an empty one behind a full one.
        packets = Packets(self.speed.quiet, 0, 8)
        m.submodules.packets = DomainRenamer("usb")(packets)
        m.d.comb += [
            device.connect.eq(~ResetSignal("usb")),
            packets.i.payload.eq(self.i.payload),
            packets.i.valid.eq(self.i.valid & line.opened),
            self.i.ready.eq(packets.i.ready | ~line.opened),
            outward.stream.payload.eq(packets.o.payload),
            outward.stream.valid.eq(packets.o.valid),
            outward.stream.last.eq(packets.last),
            packets.o.ready.eq(outward.stream.ready),
        ]
        wiring.connect(m, inward.o, wiring.flipped(self.o))
        return m


def _of_nobody(setup: Any) -> Any:
    """Whether a request is of a type that nothing here has any of."""
    return (setup.type == USBRequestType.VENDOR) | (setup.type == USBRequestType.RESERVED)
