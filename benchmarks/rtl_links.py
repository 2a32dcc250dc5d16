"""How fast a circuit of list reduction trains behind each of its links: predicted, and simulated.

    python benchmarks/rtl_links.py            # simulates, for minutes, and writes the records
    python benchmarks/rtl_links.py --usb      # those over USB alone, which have a record of their own
    python benchmarks/rtl_links.py --table    # what the record says, for the page of boards

Simulated are the circuit, its link and the driver that a board would have, in the circuit's time; only the
host takes none. Over Ethernet the latency each way is half of what a datagram takes to another process of
this machine and back, which is measured, and 100 microseconds. Predicted is the slowest of three: the
circuit with every word at hand; the line, with all that goes over it; and the latency, twice there and back
for each sequence, of which as many are on their way as there are keys. Over USB both directions share the
line; at high speed the circuit takes twelve cycles for the bytes of a word in each.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a script

from amphw.host.config import resolve
from amphw.host.session import update_rules
from amphw.ir.device import DeviceOptions, Mode
from amphw.models import get_model
from amphw.rtl.build.board_links import USB_RATES
from amphw.rtl.build.circuit import FILE, Circuit
from amphw.rtl.driver.board import BoardDevice
from amphw.rtl.driver.device import HardwareDevice
from amphw.rtl.driver.serial_words import SerialWords
from amphw.rtl.driver.verilator import VerilatorDevice
from amphw.rtl.isa.word_frames import BITS, BYTES
from benchmarks.record import RESULTS, save

RECORD = RESULTS / "rtl-links.json"
OVER_USB = RESULTS / "rtl-links-usb.json"
SETTINGS = ("hidden=8", "batch=1", "optimizer=sgd")
FORMATS = "q4.12"
SIZES = {"lanes": 16, "payload": 1 << 13, "firings": 1024, "places": 512, "table": 1024}
KEYS = 16
CLOCK = 80e6
BAUD = 3_000_000
SEQUENCES = 200
ROUNDS = 2000


class Played(BoardDevice):
    """A board at a simulated network."""

    def __init__(self, folder: Path, latency: float) -> None:
        super().__init__(f"udp://simulated,circuit={folder},silence=3600")
        self.latency = latency

    def make_line(self) -> Any:
        from sim.played_network import PlayedNetwork

        self.line = PlayedNetwork(self.planned, CLOCK, self.latency)
        return self.line

    def make_link(self, plan: Any, writes: bool) -> Any:
        self.planned = plan
        return super().make_link(plan, writes)


class PlayedAtUsb(BoardDevice):
    """A board at a simulated port of USB, driven as a serial port."""

    def __init__(self, folder: Path, speed: str) -> None:
        super().__init__(f"udp://simulated,circuit={folder},silence=3600")  # no port that has to be there
        self.speed = speed

    def make_line(self) -> Any:
        from sim.played_usb import PlayedUsb

        self.line = PlayedUsb(self.planned, self.speed)
        return SerialWords(self.line, USB_RATES[self.speed])

    def make_link(self, plan: Any, writes: bool) -> Any:
        self.planned = plan
        return super().make_link(plan, writes)


def loopback() -> float:
    """Seconds that a message of nine words takes to another thread's socket and back: the median."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        there.bind(("127.0.0.1", 0))

        def echo() -> None:
            for _ in range(ROUNDS):
                there.sendto(*there.recvfrom(2048))

        thread = threading.Thread(target=echo)
        thread.start()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
            here.connect(there.getsockname())
            took = []
            for _ in range(ROUNDS):
                start = time.perf_counter()
                here.send(bytes(42))
                here.recv(2048)
                took.append(time.perf_counter() - start)
        thread.join()
    return statistics.median(took)


def problem() -> tuple[Any, Any, list[Any]]:
    model = get_model("list-reduction")
    cfg = resolve(model.config, model.defaults, None, SETTINGS)
    graph = model.graph(cfg.model)
    data = model.training(cfg.model, 0, 1)
    return graph, update_rules(cfg, graph), [data[k] for k in range(SEQUENCES)]


def trained(device: HardwareDevice, instances: list[Any], keys: int) -> None:
    """All of them, `keys` at a time."""
    free, waiting, done = list(range(keys)), list(enumerate(instances)), 0
    while done < len(instances):
        while waiting and free:
            number, instance = waiting.pop(0)
            instance.number = number
            device.submit(free.pop(), number % 256, instance, Mode.TRAIN)
        for report in device.poll():
            free.append(report.slot)
            done += 1


def on_simulator(keys: int, link: str = "") -> dict[str, float]:
    """Without a link, or over one of a rate alone."""
    graph, rules, instances = problem()
    device = VerilatorDevice(FORMATS)
    more: Mapping[str, object] = (
        {"links": f"verilator={link}", "clock": f"{CLOCK / 1e6:g}MHz"} if link else {}
    )
    device.load(graph, rules, DeviceOptions(keys, KEYS - keys + 1, settings={**SIZES, **more}))
    simulated: Any = device.link
    before = simulated.paced.now if link else simulated.simulation.cycles
    words = (simulated.paced.sent, simulated.paced.came) if link else (0, 0)
    trained(device, instances, keys)
    after = simulated.paced.now if link else simulated.simulation.cycles
    found = {"cycles": (after - before) / SEQUENCES}
    if link:
        found["words_to"] = (simulated.paced.sent - words[0]) / SEQUENCES
        found["words_from"] = (simulated.paced.came - words[1]) / SEQUENCES
    device.link = None
    simulated.close()
    return found


def over_ethernet(latency: float, folder: Path) -> dict[str, float]:
    graph, rules, instances = problem()
    device = Played(folder, latency)
    device.load(graph, rules, DeviceOptions(KEYS, 1))
    line = device.line
    before, sent = line.now, {way: list(counts) for way, counts in line.sent.items()}
    trained(device, instances, KEYS)
    found = {"seconds": (line.now - before) / SEQUENCES}
    for way in ("to", "from"):
        found[f"datagrams_{way}"] = (line.sent[way][0] - sent[way][0]) / SEQUENCES
        found[f"bytes_{way}"] = (line.sent[way][1] - sent[way][1]) / SEQUENCES
    found["words_again"] = line.end.again
    device.link = None
    line.close()
    return found


FITS = {"full": 19 * 64 * 1e3, "high": 13 * 512 * 8e3}
"""By the speed of USB, bytes a second in packets of the longest, in both directions together: as many of
these as a frame has room for (USB 2.0, tables 5-9 and 5-10)."""
A_WORD = 12
"""Cycles that a circuit takes for a word's three bytes."""


def over_usb(speed: str, folder: Path) -> dict[str, float]:
    graph, rules, instances = problem()
    device = PlayedAtUsb(folder, speed)
    device.load(graph, rules, DeviceOptions(KEYS, 1))
    line = device.line
    before, sent = line.now, dict(line.sent)
    trained(device, instances, KEYS)
    found = {"seconds": (line.now - before) / SEQUENCES, "clock_hz": line.clock}
    for way in ("to", "from"):
        found[f"bytes_{way}"] = (line.sent[way] - sent[way]) / SEQUENCES
    device.link = None
    line.close()
    return found


def behind_usb(folder: Path, cycles: float) -> dict[str, Any]:
    """cycles: of a sequence, with every word at hand."""
    described(folder)
    details, rows = {}, []
    for speed, name in (("full", "USB, full speed"), ("high", "USB, high speed")):
        found = details[speed] = over_usb(speed, folder)
        line = FITS[speed] / (found["bytes_to"] + found["bytes_from"])
        words = max(found["bytes_to"], found["bytes_from"]) / BYTES
        slowest = min(line, found["clock_hz"] / A_WORD / words, found["clock_hz"] / cycles)
        rows.append({"link": name, "predicted": slowest, "simulated": 1 / found["seconds"]})
    return {
        "settings": list(SETTINGS),
        "keys": KEYS,
        "sequences": SEQUENCES,
        "details": details,
        "rows": rows,
    }


def described(folder: Path) -> None:
    """Put into a folder what `amphw rtl` leaves of the circuit there, for its driver."""
    graph, rules, _ = problem()
    plan = VerilatorDevice(FORMATS).make_plan(graph, rules, DeviceOptions(KEYS, 1, settings=SIZES))
    (folder / FILE).write_text(Circuit.of(plan, keys=KEYS).text())


def measured(folder: Path) -> dict[str, Any]:
    described(folder)
    round_trip = loopback()
    # A line that is never waited for; with one key each word is awaited anyway.
    alone, one = on_simulator(KEYS, "100Gb/s"), on_simulator(1)
    circuit = CLOCK / alone["cycles"]
    bits = BAUD * 16 / (BITS * BYTES)
    serial = on_simulator(KEYS, f"{bits / 1e6:g}Mb/s")
    slowest = max(serial["words_to"], serial["words_from"]) * 16 / bits
    rows = [
        {
            "link": f"serial line, {BAUD:,} baud",
            "predicted": min(circuit, 1 / slowest),
            "simulated": CLOCK / serial["cycles"],
        }
    ]
    details = {"serial": serial}
    for name, latency in (("measured", round_trip / 2), ("100us", 100e-6)):
        found = over_ethernet(latency, folder)
        details[name] = found
        wire = max(found["bytes_to"], found["bytes_from"]) / CLOCK
        waits = KEYS / (4 * latency + one["cycles"] / CLOCK)
        rows.append(
            {
                "link": f"Ethernet, {1e6 * latency:.0f} µs each way",
                "predicted": min(circuit, 1 / wire, waits),
                "simulated": 1 / found["seconds"],
            }
        )
    rows.append({"link": "none: every word at hand", "predicted": circuit, "simulated": circuit})
    return {
        "settings": list(SETTINGS),
        "formats": FORMATS,
        "sizes": SIZES,
        "keys": KEYS,
        "clock_hz": CLOCK,
        "sequences": SEQUENCES,
        "round_trip_us": 1e6 * round_trip,
        "cycles": {"keys": alone["cycles"], "one": one["cycles"]},
        "details": details,
        "rows": rows,
    }


def table(record: Mapping[str, Any], usb: Mapping[str, Any]) -> str:
    """For the page of boards: sequences a second."""
    *first, last = record["rows"]
    lines = ["| link | predicted | simulated | measured |", "| -- | -- | -- | -- |"]
    for row in [*first, *usb["rows"], last]:
        lines.append(f"| {row['link']} | {row['predicted']:,.0f} | {row['simulated']:,.0f} | none yet |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="what the record says")
    parser.add_argument("--usb", action="store_true", help="simulate those over USB alone")
    said = parser.parse_args()
    if not said.table:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            if not said.usb:
                save(measured(Path(folder)), RECORD)
            cycles = read(RECORD)["cycles"]["keys"]
            save(behind_usb(Path(folder), cycles), OVER_USB)
    print(table(read(RECORD), read(OVER_USB)))


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
