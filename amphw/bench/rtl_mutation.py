"""`amphw bench rtl-mutation`: how many faults in the gateware its benches notice.

The benches are not part of the package; they lie beside it in the source, in `sim`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import amphw
from amphw.bench.errors import BenchError
from amphw.host.run_folder import environment


def measure_mutation(mutants: int, seed: int, minutes: float, say: Callable[[str], None]) -> dict[str, Any]:
    """The record: see `amphw.rtl.mutation.campaign.summary`.

    minutes: after which it stops; inf: never. Raises BenchError without the source, ToolchainError where a
    tool is missing or fails.
    """
    from amphw.rtl.mutation.campaign import campaign

    found = campaign(_subjects(), mutants, seed, 60 * minutes, say)
    return {
        "workload": "rtl-mutation",
        **found,
        "date": date.today().isoformat(),
        "environment": environment(),
    }


def _subjects() -> list[Any]:
    """The circuits with their benches, `sim.mutants`."""
    root = Path(amphw.__file__).parents[1]
    if not (root / "sim" / "mutants" / "__init__.py").is_file():
        raise BenchError(
            "the gateware's benches are not part of the package: get amphw's source, and install it with "
            "pip install -e '.[rtl]'"
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    subjects: list[Any] = importlib.import_module("sim.mutants").subjects()
    return subjects
