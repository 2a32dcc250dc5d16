"""The line to a board in a network, with whatever answers there, or does not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from amphw.ir.errors import AmphwError, DeviceAbsentError, DeviceLostError
from amphw.rtl.driver import udp_line
from amphw.rtl.driver.board import Argument, BoardDevice
from amphw.rtl.driver.udp_line import UdpLine, parse
from amphw.rtl.isa.datagrams import PORT, About, Datagram, DatagramKind
from tests.rtl.driver.fake_circuit import FakeCircuit


class Answers:
    """At a port of this machine: circuits that all hear what comes, each with what it says to it."""

    def __init__(self, *circuits: FakeCircuit) -> None:
        self.circuits = list(circuits)
        self.busy: About | None = None
        self.heard: list[Datagram] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.02)
        self.port = f"udp://127.0.0.1:{self._socket.getsockname()[1]}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                data, who = self._socket.recvfrom(1 << 16)
            except OSError:
                continue
            said = Datagram.decode(data)
            if said is not None:
                self.heard.append(said)
                if self.busy is not None:
                    words = self.busy.pack()
                    answers = [Datagram(DatagramKind.BUSY, said.session, words=words).encode()]
                else:
                    answers = [each for circuit in self.circuits for each in circuit.hear(data)]
                for each in answers:
                    self._socket.sendto(each, who)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()


@contextmanager
def answers(*circuits: FakeCircuit) -> Iterator[Answers]:
    made = Answers(*circuits)
    try:
        yield made
    finally:
        made.close()


def read(line: UdpLine, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        came = line.read(5.0)
        assert came is not None, f"{len(found)} words have come"
        found += came.tolist()
    return found


def test_words_go_and_come() -> None:
    with answers(FakeCircuit(identity=99)) as there:
        line = UdpLine(there.port, 5.0)
        assert line.read(0.0) is None and line.identity is None
        line.start()
        assert line.identity == 99
        sent = np.random.default_rng(1).integers(0, 1 << 16, 5000).astype(np.uint16)
        line.write(sent)
        assert read(line, 5000) == (sent + 1).tolist()
        assert line.read(0.01) is None
        line.close()
        while there.heard[-1].kind != DatagramKind.END:
            pass


def test_it_begins_anew() -> None:
    """A second line to the same board has a session of its own."""
    with answers(FakeCircuit()) as there:
        for number in (3, 5):
            line = UdpLine(there.port, 5.0)
            line.start()
            line.write(np.array([number], np.uint16))
            assert read(line, 1) == [number + 1]
            line.close()
        assert len({said.session for said in there.heard}) == 2


def test_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody listens there, and says nothing: no different from a network that swallows all."""
    monkeypatch.setattr(udp_line, "ANSWER", 0.3)
    with answers() as there:
        line = UdpLine(there.port, 5.0)
        with pytest.raises(DeviceAbsentError, match=r"^nothing answers at udp://127.*netmask\)\?$") as caught:
            line.start()
        for what in ("powered", "amphw flash", "cable", "address in the board's file"):
            assert what in str(caught.value)
        assert len(there.heard) > 1
        line.close()


def test_a_machine_that_is_no_board(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp_line, "ANSWER", 0.3)
    with answers() as there:
        port = there.port
    line = UdpLine(port, 5.0)
    with pytest.raises(
        DeviceAbsentError, match="a machine answers at .*, but nothing there listens: it is no"
    ):
        line.start()
    line.close()


def test_a_board_that_somebody_else_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp_line, "ANSWER", 0.2)
    monkeypatch.setattr(udp_line, "HOLD", 0.2)
    with answers(FakeCircuit()) as there:
        there.busy = About(1, 2, 3, 0xC0A8_0107, 5555)
        line = UdpLine(there.port, 5.0)
        with pytest.raises(
            DeviceAbsentError, match=r"is driven by another host, 192\.168\.1\.7:5555: it can be had"
        ):
            line.start()
        line.close()


def test_it_waits_for_a_host_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with answers(FakeCircuit()) as there:
        there.busy = About(1, 2, 3, 0xC0A8_0107, 5555)
        threading.Timer(0.5, lambda: setattr(there, "busy", None)).start()
        line = UdpLine(there.port, 5.0)
        line.start()
        assert there.heard[0].session == there.heard[-1].session
        line.close()


def test_two_boards_of_one_address() -> None:
    """Each answers START, as where a switch does not know yet which of them it is."""
    with answers(FakeCircuit(), FakeCircuit(mac=0x024D_0000_0033)) as there:
        line = UdpLine(there.port, 5.0)
        with pytest.raises(
            DeviceLostError,
            match=r"two boards answer at .* \(02:4d:00:00:00:32 and 02:4d:00:00:00:33\): give each an ",
        ):
            line.start()
        line.close()


def test_another_board_takes_its_place() -> None:
    """As where a switch has come to know the other one of two, or where one was exchanged."""
    with answers(FakeCircuit()) as there:
        line = UdpLine(there.port, 5.0)
        line.start()
        there.circuits = [FakeCircuit(mac=0x024D_0000_0033)]
        line.write(np.array([1], np.uint16))
        with pytest.raises(
            DeviceLostError, match=r"another board answers .* \(02:4d:00:00:00:33 instead of 02:4"
        ):
            read(line, 1)
        line.close()


@pytest.mark.parametrize(
    ("host", "why"),
    [(0, "it was flashed or powered anew"), (0xC0A8_0107, r"the host 192\.168\.1\.7:9 drives it now")],
)
def test_a_board_that_has_forgotten_the_session(host: int, why: str) -> None:
    with answers(FakeCircuit()) as there:
        line = UdpLine(there.port, 5.0)
        line.start()
        there.circuits = [FakeCircuit()]
        there.circuits[0].about = About(there.circuits[0].about.mac, 7, 5, host, 9)
        line.write(np.array([1], np.uint16))
        with pytest.raises(DeviceLostError, match=f"knows nothing of this run any more: {why}"):
            read(line, 1)
        line.close()


def test_silence_says_what_to_do() -> None:
    with answers(FakeCircuit()) as there:
        line = UdpLine(there.port, 0.5)
        line.start()
        there.circuits = []
        line.write(np.array([1], np.uint16))
        with pytest.raises(
            DeviceLostError, match=r"^nothing has come from udp://.*silence= seconds \(0\.5 here\)$"
        ):
            read(line, 1)
        line.close()


@pytest.mark.parametrize(
    ("port", "address"),
    [("udp://192.168.1.50", ("192.168.1.50", PORT)), ("udp://board.local:7", ("board.local", 7))],
)
def test_an_address(port: str, address: tuple[str, int]) -> None:
    assert parse(port) == address
    about = Argument.parse(f"{port},q4.12")
    assert about.port == port and about.in_network and about.patience == 30.0
    assert Argument.parse(f"{port},silence=2").patience == 2.0


@pytest.mark.parametrize(
    "port", ["udp://", "udp://:5", "udp://a:", "udp://a:0", "udp://a:99999", "udp://a:b"]
)
def test_what_is_no_address(port: str) -> None:
    with pytest.raises(AmphwError, match=r"names no board in a network: write udp://192\.168\.1\.50 or udp"):
        BoardDevice(f"{port},q4.12")


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(DeviceAbsentError, match=r"no\.such\.name\.invalid is no address that can be reached"):
        UdpLine("udp://no.such.name.invalid", 1.0)


def test_a_network_has_no_baud_rate() -> None:
    with pytest.raises(AmphwError, match="baud= is a serial line's; a network has none"):
        BoardDevice("udp://192.168.1.50,baud=9600")
    assert BoardDevice("udp://192.168.1.50,q4.12").capabilities().notes == "udp://192.168.1.50"
