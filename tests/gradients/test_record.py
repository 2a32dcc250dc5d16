"""What is stored is what the recorder computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.gradients import recorded

pytest.importorskip("torch")


def test_all_entries_are_recorded() -> None:
    from tests.gradients.models import ENTRIES

    assert sorted(ENTRIES) == recorded.names()


@pytest.mark.parametrize("name", recorded.names())
def test_a_recording_can_be_repeated(name: str) -> None:
    from tests.gradients.models import ENTRIES
    from tests.gradients.record import differentiated

    r, entry = recorded.load(name), ENTRIES[name]
    about = "recorded with another model or configuration; record it again"
    assert (r.model, r.config) == (entry.model, entry.config), about
    loss, gradients = differentiated(r)
    assert loss == pytest.approx(r.loss, rel=1e-9)
    assert recorded.furthest(gradients, r.gradients)[1] < 1e-6


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    r = recorded.load("tree-lstm")
    recorded.save(r, tmp_path)
    back = recorded.load("tree-lstm", tmp_path)
    assert (back.config, back.loss, back.by) == (r.config, r.loss, r.by)
    for mine, theirs in zip(back.instances, r.instances, strict=True):
        assert (mine.number, mine.attrs, mine.tables.keys()) == (
            theirs.number,
            theirs.attrs,
            theirs.tables.keys(),
        )
        for table in mine.tables:
            np.testing.assert_array_equal(mine.tables[table], theirs.tables[table])
