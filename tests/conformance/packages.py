"""Packages that bring a device, as `pip install` leaves them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, device: str, target: str, source: str) -> None:
    """Put a package with a device into a folder that Python looks into. target: as in `module:Class`."""
    module = target.partition(":")[0]
    (folder / f"{module}.py").write_text(source)
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[amphw.devices]\n{device} = {target}\n")
    monkeypatch.syspath_prepend(folder)
    importlib.invalidate_caches()
    monkeypatch.setitem(sys.modules, module, None)  # and it is forgotten at the end
    monkeypatch.delitem(sys.modules, module)
