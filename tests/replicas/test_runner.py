"""Replicas from Python."""

from __future__ import annotations

import pytest

from amphw.host.controller import Trainer
from amphw.host.devices import make_device
from amphw.ir.config_fields import ConfigError
from amphw.replicas.runner import get_runner, shard
from tests.host.training import MODEL
from tests.replicas.test_equivalence import settings


def test_a_script_of_one_device_becomes_one_of_several() -> None:
    device = make_device("reference")
    one = Trainer(MODEL, settings(MODEL, 2, "lr=0.05"), device, None).run()
    device.close()
    runner = get_runner(MODEL, {"localhost": ["reference", "reference"]}, settings(MODEL, 1, "lr=0.05"))
    two = runner.run()
    assert two is not None and two.valid["loss"] == pytest.approx(one.valid["loss"], rel=1e-5)
    assert runner.synchronised is not None and runner.synchronised.ranks == 2


def test_one_device_is_one_rank() -> None:
    summary = get_runner(MODEL, {"localhost": ["reference"]}, settings(MODEL, 1)).run()
    assert summary is not None and summary.epochs == 2


def test_alone_a_process_has_all_instances() -> None:
    instances = MODEL.training(settings(MODEL, 1).model, 1, 1, 0)
    assert [i.number for i in shard(instances)] == list(range(len(instances)))


@pytest.mark.parametrize(
    ("resources", "says"),
    [
        ({}, "names no device"),
        ({"localhost": ["cpu"], "node-b": ["cpu"]}, "mpiexec -n 2 -hosts localhost,node-b"),
        ({"localhost": ["cpu", "cpu"]}, "write --set train.mode=pipeline"),
    ],
)
def test_what_cannot_be_run_is_refused(resources: dict[str, list[str]], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        get_runner(MODEL, resources, settings(MODEL, 1, "mode=async"))
