"""An interpreter that stands in for the peers', so that no test needs a framework."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

FAKE = Path(__file__).with_name("fake_peer.py")


@pytest.fixture
def fake_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """fake_peer(rates={...}, failing=[...]) -> the path of an interpreter that behaves so."""

    def make(**how: object) -> str:
        program = tmp_path / "fake-python"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
        program.chmod(0o755)
        monkeypatch.setenv("FAKE_PEER", json.dumps(how))
        return str(program)

    return make
