"""Members that join a job get its values, and every gradient once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.host import snapshots
from amphw.host.devices import make_device
from amphw.replicas.ako.message import Member
from amphw.replicas.elastic.audit import audit
from amphw.replicas.elastic.board import RefusedError
from amphw.replicas.elastic.table import LEFT, TRAINING
from tests.daily import daily
from tests.host.training import MODEL
from tests.replicas.elastic.jobs import TOY, Job, slowly, until
from tests.replicas.test_equivalence import Kept


class Apart:
    """Devices of members, in the order in which they came."""

    def __init__(self) -> None:
        self.made: list[Kept] = []

    def __call__(self) -> Kept:
        self.made.append(Kept())
        return self.made[-1]


@pytest.mark.parametrize("mode", ["async", "pipeline"])
@pytest.mark.parametrize("partitions", daily(["auto"], ["1", "3"]))
def test_one_that_joins_gets_every_gradient_once(mode: str, partitions: str, tmp_path: Path) -> None:
    """With SGD at a constant rate all have then moved as far as all others, in whatever order messages
    came."""
    made = Apart()
    toy = [*TOY, f"mode={mode}", f"replicas.partitions={partitions}", "replicas.every=1"]
    with Job(tmp_path, 3, *toy, model=MODEL, make=made) as job:
        for _ in range(3):
            job.start(slowly)
        until(lambda: job.board.table.leases.epochs)
        job.start(slowly)
    assert len(job.board.table.present(LEFT)) == 4
    assert job.board.table.seen[Member(3)].figures["instances"] > 0
    first, *others = (device.last for device in made.made)
    for other in others:
        for name, value in first.items():
            np.testing.assert_allclose(other[name], value, rtol=0, atol=1e-12)
    assert audit(tmp_path).lost == audit(tmp_path).doubled == 0


def test_a_newcomer_leaves_to_its_donor_what_that_is_short_of_an_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values are given between two rounds of a lease, when nodes may have gradients that no update has taken;
    the donor tells all of these, the newcomer as well."""
    short, forget = [], snapshots.forget_gradients

    def noted(device: Any) -> None:
        short.append(sum(p.rows for p in device.parameters().values()))
        forget(device)
        assert not any(p.rows or g.any() for p in device.parameters().values() for g in p.gradients.values())

    monkeypatch.setattr(snapshots, "forget_gradients", noted)
    toy = ["mode=async", "min_update_interval=100000", "replicas.every=1", "epochs=100000"]
    with Job(tmp_path, 2, *toy) as job:
        for _ in range(2):
            job.start(slowly)
        until(lambda: len(job.board.table.present(TRAINING)) == 2)  # who comes before that is no newcomer
        for came in range(1, 5):
            job.start(slowly)
            until(lambda came=came: len(short) == came)  # type: ignore[misc]
        job.board.stop("tried")
    assert max(short) > 0


def test_members_whose_numbers_are_of_another_kind_are_refused(tmp_path: Path) -> None:
    devices = iter((Kept, lambda: make_device("cpu")))
    refused = "numbers is float64 in the job, and float32 here"
    toy = [*TOY, "mode=pipeline", "epochs=100000"]
    with (
        pytest.raises(RefusedError, match=refused),
        Job(tmp_path, 1, *toy, model=MODEL, make=lambda: next(devices)()) as job,
    ):
        job.start(slowly)
        until(lambda: job.board.table.present(TRAINING))
        job.start(slowly)
        until(lambda: job.errors)
