"""Inference from a checkpoint gives what the trained device computes, in the order of the instances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.host.checkpoint import CheckpointError
from amphw.host.checkpointing import BEST, CHECKPOINT
from amphw.host.controller import Trainer
from amphw.host.prediction import find_checkpoint, predict
from amphw.host.run_folder import RunFolder
from amphw.ir.device import Mode
from amphw.ir.errors import InstanceError
from amphw.ir.instance import Instance
from tests.host.training import MODEL, WatchedDevice, settings


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, dict[str, Any]]:
    """A trained run and its last parameters by node."""
    folder = RunFolder.create(tmp_path_factory.mktemp("runs") / "run", "m")
    device = WatchedDevice()
    Trainer(
        MODEL, settings("epochs=8", "replicas=2", "lr=0.05", "min_update_interval=10"), device, folder
    ).run()
    return folder, {node: p.values for node, p in device.parameters().items()}


def test_predictions_come_in_order_and_from_the_trained_parameters(run: Any) -> None:
    folder, values = run
    cfg = settings("replicas=2", "max_infer_keys=3")
    instances = list(MODEL.validation(cfg.model, 9))
    device = WatchedDevice(order="random")
    reports = predict(MODEL, cfg, device, folder.file(CHECKPOINT), instances)
    assert [report.number for report in reports] == list(range(len(instances)))
    assert {mode for *_, mode in device.submitted} == {Mode.PREDICT}
    for instance, report in zip(instances, reports, strict=True):
        h = np.maximum(instance.data["x"] @ values["cell_0"]["W"] + values["cell_0"]["b"], 0)
        logits = h @ values["head"]["W"] + values["head"]["b"]
        assert (report.outputs["loss"]["prediction"][:, 0] == logits.argmax(axis=1)).all()


def test_a_text_is_predicted(run: Any) -> None:
    cfg = settings("replicas=2")
    instances = [MODEL.parse(cfg.model, text) for text in ("5 0 0", "0 0 5")]
    reports = predict(MODEL, cfg, WatchedDevice(), run[0].path, instances)
    told = [MODEL.explain(cfg.model, i, r) for i, r in zip(instances, reports, strict=True)]
    assert told == [{"prediction": 0}, {"prediction": 2}]


def test_another_optimiser_does_not_matter(run: Any) -> None:
    cfg = settings("replicas=2", "optimizer=sgd")
    instances = [MODEL.parse(cfg.model, "5 0 0")]
    assert predict(MODEL, cfg, WatchedDevice(), run[0].path, instances)
    assert predict(MODEL, cfg, WatchedDevice(), run[0].path, []) == []


def test_a_run_folder_stands_for_its_best_checkpoint(run: Any, tmp_path: Path) -> None:
    folder = run[0]
    assert find_checkpoint(folder.path) == folder.file(BEST)
    assert find_checkpoint(folder.file(CHECKPOINT)) == folder.file(CHECKPOINT)
    (tmp_path / CHECKPOINT).touch()
    assert find_checkpoint(tmp_path) == tmp_path / CHECKPOINT
    (tmp_path / CHECKPOINT).unlink()
    with pytest.raises(CheckpointError, match="holds no checkpoint .*train.checkpoint_every above 0"):
        find_checkpoint(tmp_path)


def test_a_checkpoint_of_another_graph_is_refused(run: Any) -> None:
    with pytest.raises(CheckpointError, match="belongs to another graph"):
        predict(MODEL, settings("hidden=3"), WatchedDevice(), run[0].path, [])


def test_an_instance_that_breaks_the_schema_is_refused(run: Any) -> None:
    with pytest.raises(InstanceError, match="instance 0: the attribute 'batch' is missing"):
        predict(MODEL, settings("replicas=2"), WatchedDevice(), run[0].path, [Instance()])
