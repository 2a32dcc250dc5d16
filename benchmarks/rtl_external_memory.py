"""Weights outside of the chip: from how many rows in a message a circuit does not wait for its memory.

    python benchmarks/rtl_external_memory.py          # prints the table, and writes the record

A matrix in external memory is read twice for a message out and back, and its summed gradients are read
and written; more rows in the message are more work for the same words. Until the memory keeps up, the
circuit waits for it. What the circuit takes is what `amphw estimate --lanes` counts; what memories give
is their makers' peak, of which a controller reaches `EFFICIENCY`. The alternative are several chips that
keep all weights, between which messages go over a link.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a script

from amphw.rtl.isa.wire import HEADER_WORDS, WORD
from amphw.rtl.timing.circuit import CircuitModel
from benchmarks.record import RESULTS, save
from benchmarks.rtl_plans import plan_of

RECORD = RESULTS / "rtl-external-memory.json"
MODEL, NODE, WIDTH, LANES, CLOCK_MHZ = "list-reduction", "cell", 128, 16, 50.0
ROWS = (1, 2, 4, 8, 16, 32, 64)
EFFICIENCY = 0.8
"""Of long bursts in order, as the walks of the lane engine are; refreshes and turns take the rest."""


@dataclass(frozen=True)
class Memory:
    """bits, mhz: of its data pins, and transfers a second on each of them. source: of both."""

    board: str
    kind: str
    bits: int
    mhz: float
    source: str

    @property
    def words_per_s(self) -> float:
        return self.bits / WORD * self.mhz * 1e6 * EFFICIENCY


MEMORIES = (
    Memory("ulx3s-85f", "SDRAM", 16, 143, "ISSI IS42S16160G-7, 143 MHz"),
    Memory("orangecrab-85f", "DDR3L", 16, 800, "DDR3-800 is what ECP5's pins take (Lattice FPGA-TN-02035)"),
    Memory("ecpix5-85f", "DDR3L", 16, 800, "DDR3-800 is what ECP5's pins take (Lattice FPGA-TN-02035)"),
)

LINKS = {"a serial line of 3 Mbaud": 3e6 * 16 / 22.5, "Ethernet, 100 Mb/s": 90e6, "Ethernet, 1 Gb/s": 900e6}
"""Bits a second of messages, both ways alike."""


def transferred(plan: Any) -> int:
    """Words of external memory that the node's matrix moves for a message out and back."""
    graph = plan.graph
    weights = sum(math.prod(spec.shape) for spec in graph.nodes[NODE].params)
    sums = -(-plan.formats.sums // WORD)
    return weights * (1 + 1 + 2 * sums)


def figures() -> dict[str, Any]:
    settings = (f"hidden={WIDTH}", "batch=1", "optimizer=sgd")
    plan = plan_of(MODEL, settings, "q4.12", LANES, 1, "ulx3s-85f")
    model = CircuitModel(plan)
    words, unit = transferred(plan), model.units[NODE]
    spaces = [space for space, _ in unit.behaviour.spaces]
    seconds = {}
    for rows in ROWS:
        of = dict.fromkeys(spaces, rows)
        cycles = sum(model.firing(NODE, back, of) for back in (False, True))
        seconds[rows] = cycles / (CLOCK_MHZ * 1e6)
    boards = []
    for memory in MEMORIES:
        moved = words / memory.words_per_s
        boards.append(
            {
                "board": memory.board,
                "memory": memory.kind,
                "source": memory.source,
                "seconds_a_message": moved,
                "slower_by_rows": {str(rows): max(1.0, moved / took) for rows, took in seconds.items()},
                "rows_to_pay": next((r for r in range(1, 1000) if moved <= _at(seconds, r)), None),
            }
        )
    sent = WORD * 2 * (HEADER_WORDS + WIDTH)  # out and back
    return {
        "model": f"{MODEL}, {NODE}, {WIDTH} units, {LANES} lanes, {CLOCK_MHZ:g} MHz",
        "words_a_message": words,
        "circuit_seconds_by_rows": {str(rows): took for rows, took in seconds.items()},
        "external": boards,
        "link_seconds_for_one_row": {name: sent / rate for name, rate in LINKS.items()},
    }


def _at(seconds: dict[int, float], rows: int) -> float:
    """Seconds of a message of any number of rows: they lie on a line."""
    first, last = min(seconds), max(seconds)
    return seconds[first] + (seconds[last] - seconds[first]) * (rows - first) / (last - first)


def main() -> None:
    found = figures()
    took = found["circuit_seconds_by_rows"]
    print(f"{found['model']}: {1e6 * took['1']:.0f} us for a message of one row, out and back")
    for each in found["external"]:
        print(
            f"{each['board']}, {each['memory']}: {1e6 * each['seconds_a_message']:.0f} us of memory, "
            f"{each['slower_by_rows']['1']:.1f} times as long with one row; "
            f"enough from {each['rows_to_pay']} rows"
        )
    for name, seconds in found["link_seconds_for_one_row"].items():
        print(f"to another chip and back, {name}: {1e6 * seconds:.0f} us")
    save(found, RECORD)


if __name__ == "__main__":
    main()
