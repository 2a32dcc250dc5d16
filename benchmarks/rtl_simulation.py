"""Speed of the in-process simulation of generated hardware, in cycles and words a second.

    python benchmarks/rtl_simulation.py [--cycles 5000000]

The device is the smallest one that moves words: the figure is an upper bound, of which a real device's logic
takes its part. Batches show what one call costs.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from amphw.rtl.verilated.simulation import Simulation
from tests.rtl.verilated.components import Adder

BATCHES = (1, 16, 256, 4096, 65536)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=5_000_000, help="per row")
    cycles_wanted = parser.parse_args().cycles
    start = time.perf_counter()
    with Simulation(Adder()) as simulation:
        print(f"ready after {time.perf_counter() - start:.2f} s")
        print(f"{'words a call':>14} {'M cycles/s':>12} {'M words/s':>12}")
        for batch in BATCHES:
            words = np.arange(batch, dtype=np.uint16)
            calls = max(1, min(cycles_wanted // batch, 200_000))
            begin, moved = simulation.cycles, 0
            start = time.perf_counter()
            for _ in range(calls):
                moved += simulation.exchange(words, batch + 4, until_words=batch).words.size
            seconds = time.perf_counter() - start
            passed = simulation.cycles - begin
            print(f"{batch:>14} {passed / seconds / 1e6:>12.2f} {moved / seconds / 1e6:>12.2f}")


if __name__ == "__main__":
    main()
