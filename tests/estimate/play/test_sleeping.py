"""The sleep method: what it measures is not asserted, what it makes of it is."""

from __future__ import annotations

import pytest

from amphw.cpu_runtime import planes
from amphw.estimate.play.sleeping import REFERENCES, measure, time_to_target
from amphw.host.config import resolve
from amphw.ir.errors import AmphwError
from amphw.models import get_model
from amphw.models.base import Instances

SMALL = ["hidden=8", "batch=5", "train_instances=50", "valid_instances=10"]
needs_plane = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")


def test_time_to_target_is_epochs_of_training_and_validation() -> None:
    """AMPNet, ICLR 2018 submission HJnQJXbC-, appendix C."""
    assert time_to_target(3, train=1000, valid=100, train_per_s=500.0, valid_per_s=50.0) == 3 * (2.0 + 2.0)


@needs_plane
def test_layers_wait_on_their_devices_and_all_else_runs() -> None:
    model = get_model("list-reduction")
    cfg = resolve(model.config, model.defaults, None, SMALL)
    model.prepare(cfg.model, cfg.train.seed)
    found = measure(model, cfg, {"cell": 0, "head": 1}, 1e12, 4, seconds=0.05, epochs=2)
    assert found.train_per_s > 0 and found.valid_per_s > 0
    assert (found.train_size, found.valid_size, found.epochs) == (50, 10, 2)
    assert found.time_to_target == time_to_target(2, 50, 10, found.train_per_s, found.valid_per_s)
    assert found.reference == REFERENCES["list-reduction"] == 268_000


def test_without_instances_there_is_nothing_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    model = get_model("list-reduction")
    cfg = resolve(model.config, model.defaults, None, SMALL)
    monkeypatch.setattr(type(model), "validation", lambda *_: Instances(0, lambda i: None))  # type: ignore[arg-type, return-value]
    with pytest.raises(AmphwError, match="there are no validation instances"):
        measure(model, cfg, {"cell": 0, "head": 0}, 1e12, 4, seconds=0.05, epochs=1)
