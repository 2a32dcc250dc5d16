"""Messages through the simulated circuit, its lane engine as gates and as a functional model, in turns.

    python benchmarks/simulation_bars.py [--rounds 5] [--seconds 8] [--json FILE]

The layer of benchmarks/rtl_messages.py, forward and in training. Rounds of the two alternate, so that other
work on the machine meets both; medians are compared. The bar is 10,000 messages/s forward with the model. By
second of processor time it is what a machine that does nothing else would do.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from record import save
from rtl_messages import BAR, measured

from amphw.ir.device import Mode
from amphw.rtl.driver.verilator import LANES

MODES = (Mode.INFER, Mode.TRAIN)
KEY, CPU = "messages_per_s", "messages_per_cpu_s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8, help="of each measurement")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    runs = [
        {f"{lanes} {mode.value}": measured(mode, given.seconds, lanes) for lanes in LANES for mode in MODES}
        for _ in range(given.rounds)
    ]
    medians = {
        which: {key: statistics.median(run[which][key] for run in runs) for key in runs[0][which]}
        for which in runs[0]
    }
    for which, values in medians.items():
        print(
            f"{which:>12}: {values[KEY]:>8,.0f} messages/s, {values[CPU]:>8,.0f} by second of the processor, "
            f"{values['cycles_per_message']:,.0f} cycles each"
        )
    times = {
        mode.value: medians[f"model {mode.value}"][CPU] / medians[f"gates {mode.value}"][CPU]
        for mode in MODES
    }
    met = medians[f"model {Mode.INFER.value}"][KEY] >= BAR
    print(f"faster: {', '.join(f'{mode} {by:.1f} times' for mode, by in times.items())}")
    print(f"bar of {BAR:,} messages/s forward: {'met' if met else 'not met'}")
    if given.json:
        save({"medians": medians, "faster": times, "bar": BAR, "met": met, "rounds": runs}, given.json)


if __name__ == "__main__":
    main()
