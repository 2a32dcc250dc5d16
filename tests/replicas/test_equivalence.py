"""Replicas in step give what one process gives with a window as large as all of theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.ir.device import Device
from amphw.ir.reference import ReferenceDevice
from amphw.models import get_model
from amphw.replicas.run import train_in_threads
from tests.host.training import MODEL

RULES = [
    ["optimizer=sgd", "lr=0.1"],
    ["optimizer=adam", "lr=0.01"],
    ["optimizer=momentum", "lr=0.05", "clip=0.02", "weight_decay=0.001"],
]


class Kept(ReferenceDevice):
    """In double precision; `last` has its parameters after it is closed."""

    def __init__(self) -> None:
        super().__init__(dtype=np.float64)
        self.last: dict[str, np.ndarray] = {}

    def close(self) -> None:
        self.last = {f"{n}.{k}": v for n, p in self.parameters().items() for k, v in p.values.items()}
        super().close()


def settings(model: Any, depth: int, *others: str) -> Any:
    common = ["mode=pipeline", f"pipeline_depth={depth}", "epochs=2", "target=none"]
    return resolve(model.config, model.defaults, None, [*common, *others])


def alone(model: Any, depth: int, *others: str) -> tuple[Kept, Any]:
    device = Kept()
    summary = Trainer(model, settings(model, depth, *others), device, None).run()
    device.close()
    return device, summary


def together(model: Any, ranks: int, depth: int, *others: str) -> tuple[list[Kept], Any]:
    devices = [Kept() for _ in range(ranks)]

    def make(rank: int) -> Device:
        return devices[rank]

    return devices, train_in_threads(ranks, model, settings(model, depth, *others), make)


def differences(a: Kept, b: Kept) -> float:
    assert a.last.keys() == b.last.keys() and a.last
    return max(float(np.abs(a.last[k] - b.last[k]).max()) for k in a.last)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule[0])
@pytest.mark.parametrize(("ranks", "depth"), [(2, 1), (4, 1), (3, 2)])
def test_ranks_in_step_are_one_process_with_a_larger_window(ranks: int, depth: int, rule: list[str]) -> None:
    """12 batches: a window of 6 or 4 fits, and 5 instances leave some ranks without one."""
    for more in ([], ["train_instances=50"]):
        one, expected = alone(MODEL, ranks * depth, *rule, *more)
        every, found = together(MODEL, ranks, depth, *rule, *more)
        assert differences(every[0], one) < 1e-10
        assert all(differences(every[0], other) == 0.0 for other in every[1:])
        assert found.valid["loss"] == pytest.approx(expected.valid["loss"], rel=1e-9)
        assert found.history[-1].train_loss == pytest.approx(expected.history[-1].train_loss, rel=1e-9)
        assert [r.instances for r in found.history] == [r.instances for r in expected.history]


def test_shares_of_different_sizes_weigh_by_their_rows() -> None:
    """Sequences of all lengths: at the cell one rank has as many rows as its tokens are."""
    model = get_model("list-reduction")
    small = ["hidden=8", "batch=3", "train_instances=60", "valid_instances=12", "optimizer=adam", "clip=0.1"]
    one, _ = alone(model, 4, *small)
    every, _ = together(model, 4, 1, *small)
    assert differences(every[0], one) < 1e-10


def test_an_error_of_one_rank_ends_all() -> None:
    class Fails(Kept):
        def update(self, nodes: Any = None) -> None:
            raise RuntimeError("out of order")

    def make(rank: int) -> Device:
        return Fails() if rank == 1 else Kept()

    with pytest.raises(RuntimeError, match="out of order"):
        train_in_threads(3, MODEL, settings(MODEL, 1), make)
