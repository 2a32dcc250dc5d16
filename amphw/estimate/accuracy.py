"""How right estimates have been: each simulated beside what was measured, as listed in `accuracy.json`.

`benchmarks/estimate_bars.py --update` writes the rows of the CPU engine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from amphw.ir.errors import AmphwError

FILE = Path(__file__).with_name("accuracy.json")


@dataclass(frozen=True)
class Accuracy:
    """One comparison. against: what was measured, such as "CPU engine". setting: of model and machine.
    measured, simulated: in `unit`. command: that measures both again. date: ISO 8601. note: what the reader
    should know."""

    against: str
    model: str
    setting: str
    measured: float
    simulated: float
    unit: str
    command: str
    machine: str
    date: str
    note: str = ""

    @property
    def error(self) -> float:
        """Of what is simulated, as a share of what was measured: above 0 it is too fast."""
        return self.simulated / self.measured - 1


@cache
def known() -> tuple[Accuracy, ...]:
    """All rows of `accuracy.json`."""
    return tuple(read(FILE))


def read(path: Path) -> list[Accuracy]:
    """Raises AmphwError that names the row for what is no such list."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AmphwError(
            f"cannot read {path}: {error}; write it anew (benchmarks/estimate_bars.py)"
        ) from error
    return [_row(path, number, row) for number, row in enumerate(rows, start=1)]


def _row(path: Path, number: int, row: Mapping[str, Any]) -> Accuracy:
    try:
        error = row["error"]
        made = Accuracy(**{name: value for name, value in row.items() if name != "error"})
        fine = made.measured > 0 and math.isclose(made.error, error, abs_tol=1e-6)
    except (KeyError, TypeError) as wrong:
        raise AmphwError(
            f"{path}, row {number}: {wrong}; it has the fields of `Accuracy` and `error`"
        ) from None
    if not fine:
        raise AmphwError(f"{path}, row {number}: error is {error}, expected simulated / measured - 1")
    return made


def as_json(row: Accuracy) -> dict[str, Any]:
    return {**asdict(row), "error": row.error}


def write(path: Path, rows: Sequence[Accuracy]) -> None:
    path.write_text(json.dumps({"rows": [as_json(row) for row in rows]}, indent=1) + "\n", encoding="utf-8")


def updated(rows: Sequence[Accuracy], new: Sequence[Accuracy]) -> list[Accuracy]:
    """The rows with new ones in the place of those of the same measurement, else behind them."""
    found = {(row.against, row.model, row.setting): row for row in (*rows, *new)}
    return list(found.values())


def summary(rows: Sequence[Accuracy], model: str) -> str:
    """One line: the errors for the model, or of all models where there are none; empty without rows."""
    mine = [row for row in rows if row.model == model]
    parts = []
    for against in dict.fromkeys(row.against for row in mine or rows):
        errors = [row.error for row in mine or rows if row.against == against]
        low, high = (f"{each:+.0%}" for each in (min(errors), max(errors)))
        parts.append(
            f"{low if low == high else f'{low} to {high}'} beside {against} ({len(errors)} measured)"
        )
    if not parts:
        return ""
    return f"{'' if mine else f'not measured for {model}; other models '}{', '.join(parts)}"
