"""How far a job is, at every moment of its journal."""

from __future__ import annotations

import math
from pathlib import Path

from amphw.replicas.elastic.coordinator import JOURNAL
from amphw.replicas.elastic.journal import Journal
from amphw.replicas.elastic.standing import live
from amphw.replicas.elastic.table import Table
from tests.replicas.elastic.jobs import EPOCH, Job, slowly


def test_where_a_job_stands_within_its_epochs(tmp_path: Path) -> None:
    with Job(tmp_path, 2) as job:
        for _ in range(2):
            job.start(slowly)
    table, seen, rates = Table(), list[tuple[int, int]](), list[float]()
    for event in Journal(tmp_path / JOURNAL).read():
        table.apply(event)
        if (stats := live(table)) is None:
            assert table.ended or table.validated + 1 not in table.leases.epochs
            continue
        assert stats.epoch == table.validated + 1 and 0 <= stats.done <= stats.total == EPOCH
        assert set(stats.valid) == (set(table.history[-1]["valid"]) if table.history else set())
        if 0 < stats.done:
            # Of the time since the last epoch was validated, and at that moment there is none.
            assert math.isfinite(stats.loss) and (stats.rate >= 0 or math.isnan(stats.rate))
        seen.append((stats.epoch, stats.done))
        rates.append(stats.rate)
    assert live(table) is None and seen == sorted(seen)
    assert any(rate > 0 for rate in rates)
    for epoch in (1, 2):
        within = {done for number, done in seen if number == epoch and 0 < done < EPOCH}
        assert len(within) > 1, "it is told more often than once an epoch"
