"""The list-reduction RNN: its graph computes the recurrence, its data comes whole, its text reads back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from amphw.engine.tiles.fold import folds
from amphw.host.config import resolve
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import Capabilities, DeviceOptions, Mode, Report
from amphw.ir.instance import Instance
from amphw.ir.nodes import PPT
from amphw.ir.passes import fuse
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from amphw.models import ModelError, get_model
from amphw.models.list_reduction import ListReductionConfig, ListReductionRNN

MODEL = ListReductionRNN()
SMALL = ListReductionConfig(hidden=6, embedding=4, batch=8)


def loaded(cfg: ListReductionConfig) -> ReferenceDevice:
    device = ReferenceDevice()
    device.load(MODEL.graph(cfg), {"*": UpdateRule()}, DeviceOptions(2, 2, seed=3))
    return device


def run(device: ReferenceDevice, instance: Instance, mode: Mode = Mode.PREDICT) -> Report:
    device.submit(0, 1, instance, mode)
    (report,) = device.drain()
    return report


def numpy_rnn(parameters: dict[str, Any], tokens: np.ndarray) -> np.ndarray:
    """Logits [batch, 10] for tokens [length, batch], written down as the recurrence."""
    cell, head = (parameters[n].values for n in ("cell", "head"))
    h = np.zeros((tokens.shape[1], cell["b"].shape[0]), np.float32)
    for row in tokens:
        h = np.maximum(np.concatenate([cell["E"][row], h], axis=1) @ cell["W"] + cell["b"], 0)
    return h @ head["W"] + head["b"]


def test_the_graph_computes_the_recurrence() -> None:
    device = loaded(SMALL)
    for instance in MODEL.training(SMALL, seed=1, epoch=1, limit=60):
        report = run(device, instance)
        logits = numpy_rnn(device.parameters(), instance.tables["tokens"])
        label = instance.tables["label"]
        shifted = logits - logits.max(axis=1, keepdims=True)
        loss = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(label)), label]
        assert report.rows["loss"] == len(label)
        assert report.sums["loss"]["loss"] == pytest.approx(float(loss.sum()), rel=1e-5)
        assert (report.outputs["loss"]["prediction"][:, 0] == logits.argmax(axis=1)).all()
        assert report.sums["loss"]["accuracy"] == (logits.argmax(axis=1) == label).sum()


def numpy_gru(parameters: dict[str, Any], tokens: np.ndarray) -> np.ndarray:
    cell, head = (parameters[n].values for n in ("cell", "head"))
    width = len(cell["bh"]) // 3
    h = np.zeros((tokens.shape[1], width), np.float32)
    for row in tokens:
        i = np.split(cell["E"][row] @ cell["Wi"] + cell["bi"], 3, axis=1)
        s = np.split(h @ cell["Wh"] + cell["bh"], 3, axis=1)
        reset, keep = (1 / (1 + np.exp(-(a + b))) for a, b in zip(i[:2], s[:2], strict=True))
        h = (1 - keep) * np.tanh(i[2] + reset * s[2]) + keep * h
    return h @ head["W"] + head["b"]


def test_a_gru_can_take_the_place_of_the_cell() -> None:
    cfg = replace(SMALL, cell="gru")
    assert "relu" not in MODEL.graph(cfg).nodes
    device = loaded(cfg)
    for instance in MODEL.training(cfg, seed=1, epoch=1, limit=30):
        report = run(device, instance)
        logits = numpy_gru(device.parameters(), instance.tables["tokens"])
        assert (report.outputs["loss"]["prediction"][:, 0] == logits.argmax(axis=1)).all()
    replicated = MODEL.graph(replace(cfg, replicas=2))
    assert {"cell_0", "cell_1"} <= set(replicated.parameterised)


def test_the_gru_s_embedding_is_folded_away() -> None:
    fused = fuse(MODEL.graph(replace(SMALL, cell="gru")))
    cell = fused.nodes["cell"]
    assert isinstance(cell, PPT) and len(folds(cell.program)) == 1


def test_an_epoch_holds_every_sequence_once_in_batches_of_one_length() -> None:
    instances = MODEL.training(SMALL, seed=1, epoch=1, limit=300)
    assert instances.size == sum(MODEL.size(i) for i in instances) == 300
    for i in instances:
        assert i.tables["tokens"].shape == (i.attrs["length"], i.attrs["batch"])
        assert i.tables["tokens"].flags.c_contiguous
    assert MODEL.training(SMALL, seed=1, epoch=1).size == 100_000
    assert MODEL.validation(SMALL, seed=1).size == 10_000


def shape_of_epoch(seed: int, epoch: int) -> list[bytes]:
    return [i.tables["tokens"].tobytes() for i in MODEL.training(SMALL, seed, epoch, 200)]


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    assert shape_of_epoch(1, 1) == shape_of_epoch(1, 1)
    assert shape_of_epoch(1, 1) != shape_of_epoch(1, 2)
    assert shape_of_epoch(1, 1) != shape_of_epoch(2, 1)
    first, second = (MODEL.validation(SMALL, 1, 50) for _ in range(2))
    assert [i.tables["tokens"].tobytes() for i in first] == [i.tables["tokens"].tobytes() for i in second]


def test_a_batch_of_one_is_a_single_sequence() -> None:
    cfg = ListReductionConfig(hidden=3, batch=1)
    instances = MODEL.training(cfg, 0, 1, 5)
    assert len(instances) == 5 and {MODEL.size(i) for i in instances} == {1}
    run(loaded(cfg), instances[0], Mode.TRAIN)


def test_replicas_share_the_instances_by_number() -> None:
    device = loaded(ListReductionConfig(hidden=3, batch=8, replicas=2))
    (instance, *_) = MODEL.training(SMALL, 0, 1, 8)
    instance.number = 3
    run(device, instance, Mode.TRAIN)
    parameters = device.parameters()
    assert "cell" not in parameters
    assert parameters["cell_0"].version == 0 and parameters["cell_1"].version > 0


def test_a_text_reads_as_an_instance_and_its_prediction_is_explained() -> None:
    instance = MODEL.parse(SMALL, "range 3 1 4 1 5")
    assert instance.tables["tokens"][:, 0].tolist() == [12, 3, 1, 4, 1, 5]
    assert instance.tables["label"].tolist() == [4]
    told = MODEL.explain(SMALL, instance, run(loaded(SMALL), instance))
    assert told["label"] == 4 and told["prediction"] in range(10)
    assert 0 < told["probability_of_label"] < 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  ", "the line is empty; expected an operation"),
        ("median 1 2", "'median' is no operation; expected an operation (mean, alternate, range, length)"),
        ("mean", "'mean' has 0 digits"),
        ("mean 1 2 3 4 5 6 7 8 9 0", "has 10 digits"),
        ("mean 1 12", "'12' is no digit"),
        ("mean 1 x", "'x' is no digit"),
    ],
)
def test_another_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        MODEL.parse(SMALL, text)
    assert message in str(caught.value)
    assert "such as 'range 3 1 4 1 5'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("mean 2 3", 3),
        ("alternate 0 2 1", 9),
        ("alternate 7", 7),
        ("range 9 0 4", 9),
        ("length 0 0 0 0 0 0 0 0 0", 9),
    ],
)
def test_a_text_has_its_true_result_for_a_label(text: str, label: int) -> None:
    assert MODEL.parse(SMALL, text).tables["label"].tolist() == [label]


def test_the_configuration_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"\[model\]: hidden is 0, expected an integer of 1 or more"):
        resolve(ListReductionConfig, {}, None, ["hidden=0"])
    with pytest.raises(ConfigError, match="cell is 'lstm', expected one of rnn, gru"):
        resolve(ListReductionConfig, {}, None, ["cell=lstm"])
    with pytest.raises(ConfigError, match="replicas is 3, expected one of 1, 2, 4, 8"):
        resolve(ListReductionConfig, {}, None, ["replicas=3"])
    assert resolve(ListReductionConfig, {}, None, ["embedding=none"]).model.embedding is None


def test_little_room_for_an_instance_is_met_with_small_batches():
    model = get_model("list-reduction")
    able = Capabilities("some", "fpga", optimizers=("momentum",), instance_bytes=1 << 17)
    small, large = model.recommended(able), model.recommended(replace(able, instance_bytes=None))
    assert small["model"]["batch"] < model.config().batch
    assert "model" not in large
    assert small["update"] == large["update"] and small["update"]["optimizer"] == "momentum"
