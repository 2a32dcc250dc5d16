"""What the package says must be of use to whoever has installed it: its manual is not in the wheel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import amphw

ROOT = Path(amphw.__file__).parent
TEXT = (".py", ".json", ".cpp", ".hpp", ".in")


@pytest.mark.parametrize("room", sorted(p.name for p in ROOT.iterdir() if p.is_dir() or p.suffix in TEXT))
def test_nothing_points_into_the_manual(room: str) -> None:
    """A message says by itself what is needed, or names a command that does."""
    files = [ROOT / room] if (ROOT / room).is_file() else sorted((ROOT / room).rglob("*"))
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        if path.suffix in TEXT
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\bdocs/|\w\.md\b", line)
    ]
    assert not found
