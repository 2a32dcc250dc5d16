"""How the scripts here write down what they measured: when, by which command, at which commit, on what."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from amphw.host.run_folder import environment

RESULTS = Path(__file__).parent / "results"
"""Records that the figures of the pages come from."""


def about() -> dict[str, Any]:
    """What a figure depends on besides the script."""
    here = f"{RESULTS.parents[1]}{os.sep}"
    words = [word.removeprefix(here) for word in sys.argv[1:]]
    command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *words])
    told = environment() | {"command": command}
    above = {name: told.pop(name) for name in ("command", "commit")}
    return {"date": date.today().isoformat(), **above, "environment": told}


def save(found: Mapping[str, Any], path: Path) -> None:
    """Write a record, and say where."""
    path.write_text(json.dumps({**about(), **found}, indent=1) + "\n", encoding="utf-8")
    print(f"written to {path}")
