"""The benchmark of splits and Ako: what it looks at, from made-up rates, and one small cluster as it is."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from amphw.replicas.rehearsal import Simulated
from amphw.replicas.splits import Split

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("ako_shapes")


def outcome(shapes: ModuleType, case: Any, servers: int, ako: float = 100.0) -> Any:
    splits = [Split(case.machines, 0, 50.0), Split(case.machines - servers, servers, 100.0), Split(1, 1, 1.0)]
    return shapes.Outcome(case, splits, Simulated(ako, 1.0, {}, {}, {}, 1.0, {"partitions": 1}))


def test_checks_are_about_where_the_best_split_is_and_how_near_ako_comes(shapes: ModuleType) -> None:
    cases = [shapes.Case(n, h, m) for n in (16, 64) for h in shapes.RATES for m in shapes.SIZES]

    def share(case: Any) -> int:
        """A sixteenth for each thing that makes the network busier."""
        busy = 1 + (case.machines == 64) + (case.hardware == "fast") + (case.model == "large")
        return int(case.machines * busy // 16)

    found = [outcome(shapes, case, share(case)) for case in cases]
    assert all(shapes.checks(found).values())
    assert (found[0].apart.servers, found[0].together.servers, found[0].of_best) == (1, 0, 1.0)

    def missed(outcomes: list[Any]) -> list[str]:
        return [what for what, holds in shapes.checks(outcomes).items() if not holds]

    slow = [replace(found[0], ako=replace(found[0].ako, instances_per_s=89.0)), *found[1:]]
    assert [what.split()[0] for what in missed(slow)] == ["Ako"]
    still = [outcome(shapes, case, case.machines // 4) for case in cases]
    assert len(missed(still)) == 3 and all("moves" in what for what in missed(still))
    turned = [outcome(shapes, case, case.machines // 2 - share(case)) for case in cases]
    assert len(missed(turned)) == 2 and all("no smaller a share" in what for what in missed(turned))


def test_a_small_cluster_is_simulated(shapes: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four fast machines with the large model, which their links hold up."""
    monkeypatch.setattr(shapes, "NUMBERS", 1024)
    case = shapes.Case(4, "fast", "large")
    assert case.partitions == 4  # 4 rounds a second of 32 MB to 3 others, at 125 MB/s
    found = shapes.outcome(case)
    assert {each.servers for each in found.splits} >= {0, 1, 2}
    assert all(0 < each.throughput < 4 * each.workers for each in found.splits)
    assert found.best.throughput == max(each.throughput for each in found.splits)
    record = shapes.recorded(found)
    assert record["ako"]["of_best_split"] == pytest.approx(found.ako.instances_per_s / found.best.throughput)
    assert "PS* [" in shapes.said(found)
