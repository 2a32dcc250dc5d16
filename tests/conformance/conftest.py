"""Fixtures of the conformance suite."""

from __future__ import annotations

import pytest

from amphw.engine.tiles import fold


@pytest.fixture
def unfolded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No embedding is folded into its product. Where a message's gradients are stale, a folded weight's sees
    the table of the update in the place of the one that the message had read, so that how far a run is from
    what its log says on the reference depends on how stale it happened to be. Without, the two agree to
    rounding, however slowly the workers ran; `tests/cpu_runtime/test_tile_fold.py` holds folded tables to the
    reference."""
    monkeypatch.setattr(fold, "FOLD_ROWS", 0)
