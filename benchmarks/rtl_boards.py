"""The largest circuit of list reduction that each board holds, or the reason why none does.

    python benchmarks/rtl_boards.py               # boards that the record lacks, or whose file has changed
    python benchmarks/rtl_boards.py BOARD ...     # these, anew
    python benchmarks/rtl_boards.py --table       # what the record says, for the page of boards

Each is what `amphw rtl list-reduction --board BOARD --out DIR --bitstream` builds without further settings:
mapped, placed, routed and packed, for minutes. The record is written after each board, so that this can be
broken off at any time and goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a script

from amphw.rtl.build.boards import BOARDS, Board, board
from benchmarks.record import RESULTS, about

ROOT = Path(__file__).resolve().parents[1]

RECORD = RESULTS / "rtl-boards.json"
COMMAND = ("rtl", "list-reduction", "--bitstream", "--no-simulate", "--no-accuracy", "--json")
KEPT = (
    "lanes",
    "keys",
    "formats",
    "luts",
    "ffs",
    "dsps",
    "brams",
    "device_share",
    "clock_mhz",
    "fmax_mhz",
    "link",
    "tools",
    "seconds",
)
"""Of the report."""


def digest(on: Board) -> str:
    """Of the board's file, to see whether it has changed."""
    return hashlib.sha256(on.text.encode()).hexdigest()[:16]


def built(on: Board) -> dict[str, Any]:
    """What became of one board."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "amphw.cli", *COMMAND, "--board", on.name, "--out", out]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    told = about()
    made = {"file": digest(on), "date": told["date"], "commit": told["commit"]}
    if done.returncode:
        _, said, why = done.stderr.partition("amphw: ")
        if not said or "yowasp-" in why:  # it, or a tool, has failed, and has not refused
            raise SystemExit(f"{on.name}:\n{done.stderr}")
        return made | {"refused": " ".join(why.split())}
    facts = json.loads(done.stdout)
    settings = {each["key"]: each["value"] for each in facts["chosen"]}
    return made | {"settings": settings} | {name: facts[name] for name in KEPT}


def read() -> dict[str, Any]:
    if RECORD.is_file():
        found: dict[str, Any] = json.loads(RECORD.read_text())
        return found
    return {"command": "python benchmarks/rtl_boards.py", "boards": {}}


def table(boards: dict[str, Any]) -> str:
    """In Markdown, the largest board first."""
    lines = ["| board | circuit of list reduction | clock | of the chip |", "| -- | -- | -- | -- |"]
    for name in BOARDS:
        found = boards.get(name)
        if found is None:
            continue
        if "refused" in found:
            lines.append(f"| `{name}` | none: {found['refused']} | | |")
            continue
        said = "".join(f", `{key.rpartition('.')[2]}={value}`" for key, value in found["settings"].items())
        share = ", ".join(f"{found['device_share'][r]:.0%} {r}" for r in ("luts", "ffs", "dsps", "brams"))
        keys = f"{found['keys']} key{'s' * (found['keys'] > 1)}"
        lines.append(
            f"| `{name}` | {found['lanes']} lanes, {keys}{said} | {found['clock_mhz']:.4g} MHz | {share} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("boards", nargs="*", metavar="BOARD")
    parser.add_argument("--table", action="store_true", help="print the table alone")
    said = parser.parse_args()
    record = read()
    if not said.table:
        for on in [board(name) for name in said.boards or BOARDS]:
            if not said.boards and record["boards"].get(on.name, {}).get("file") == digest(on):
                continue
            print(f"{on.name}: building", flush=True)
            found = record["boards"][on.name] = built(on)
            RECORD.write_text(json.dumps(record, indent=1) + "\n")
            print(
                f"{on.name}: {found.get('refused') or format(found['clock_mhz'], '.4g') + ' MHz'}", flush=True
            )
    print(table(record["boards"]))


if __name__ == "__main__":
    main()
