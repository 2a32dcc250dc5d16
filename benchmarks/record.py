"""How the scripts here write down what they measured: when, by which command, at which commit, on what."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
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
    git = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty", "--abbrev=10"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    here = f"{RESULTS.parents[1]}{os.sep}"
    words = [word.removeprefix(here) for word in sys.argv[1:]]
    command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *words])
    return {
        "date": date.today().isoformat(),
        "command": command,
        "commit": commit,
        "environment": environment(),
    }


def save(found: Mapping[str, Any], path: Path) -> None:
    """Write a record, and say where."""
    path.write_text(json.dumps({**about(), **found}, indent=1) + "\n", encoding="utf-8")
    print(f"written to {path}")
