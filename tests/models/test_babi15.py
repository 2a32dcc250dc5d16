"""The graph network on bAbI 15: it computes Li et al.'s recurrence, and its predictions are what it says."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import DeviceOptions, Mode, Report
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from amphw.models import ModelError
from amphw.models.babi15 import Babi15, Babi15Config
from tests.conformance import harness

MODEL = Babi15()
SMALL = Babi15Config(hidden=3, nodes=11, sample=True)
TEXT = "Winona is a sheep. Sheep are afraid of mice. What is winona afraid of?"


def drawn(cfg: Babi15Config = SMALL) -> list[Instance]:
    instances = [MODEL.parse(cfg, TEXT), *MODEL.training(cfg, 1, 1, 12), *MODEL.validation(cfg, 1, 12)]
    for number, instance in enumerate(instances):
        instance.number = number
    return instances


def loaded(cfg: Babi15Config = SMALL, dtype: type = np.float32) -> ReferenceDevice:
    device = ReferenceDevice(dtype=dtype)
    device.load(MODEL.graph(cfg), {"*": UpdateRule()}, DeviceOptions(2, 2, updates="off", seed=3))
    return device


def run(device: ReferenceDevice, instance: Instance) -> Report:
    device.submit(0, 1, instance, Mode.PREDICT)
    (report,) = device.drain()
    return report


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def scores(p: Mapping[str, Mapping[str, np.ndarray]], cfg: Babi15Config, instance: Instance) -> np.ndarray:
    """[nodes], edge by edge."""
    t = instance.tables
    h0 = h = p["embed"]["E"][t["story_asked"]]
    of_type = t["story_of_type"]
    kinds = np.repeat(np.arange(len(of_type)), of_type)
    for _ in range(cfg.steps):
        received = np.zeros_like(h)
        for source, target, kind in zip(t["story_source"], t["story_target"], kinds, strict=True):
            layer = p[("is", "fears")[kind]]
            received[target] += h[source] @ layer["W"] + layer["b"]
        gi = np.split(received @ p["update"]["Wi"] + p["update"]["bi"], 3, axis=1)
        gh = np.split(h @ p["update"]["Wh"] + p["update"]["bh"], 3, axis=1)
        reset, keep = sigmoid(gi[0] + gh[0]), sigmoid(gi[1] + gh[1])
        new = np.tanh(gi[2] + reset * gh[2])
        h = (1 - keep) * new + keep * h
    found: np.ndarray = (np.concatenate([h, h0], axis=1) @ p["score"]["W"])[:, 0]
    return found


def test_the_graph_computes_the_recurrence_and_says_which_node_is_best() -> None:
    device = loaded(dtype=np.float64)
    p = {name: node.values for name, node in device.parameters().items()}
    for instance in drawn():
        report = run(device, instance)
        y, answer = scores(p, SMALL, instance), int(instance.tables["answer"][0])
        assert report.rows == {"loss": 1}
        assert report.sums["loss"]["loss"] == pytest.approx(np.log(np.exp(y).sum()) - y[answer], rel=1e-9)
        # Nodes without any edge into them have the same score but for rounding.
        best = int(report.outputs["loss"]["prediction"][0, 0])
        assert y[best] == pytest.approx(y.max(), rel=1e-12)
        assert report.sums["loss"]["accuracy"] == (best == answer)


def test_of_equal_scores_the_first_is_predicted() -> None:
    device = loaded()
    device.parameters()["score"].values["W"][:] = 0
    for instance in drawn():
        report = run(device, instance)
        assert report.outputs["loss"]["prediction"][0, 0] == 0
        assert report.sums["loss"]["accuracy"] == (instance.tables["answer"][0] == 0)


def test_the_multi_core_device_agrees_with_the_reference() -> None:
    graph, instances = MODEL.graph(SMALL), drawn()
    expected = harness.reference(graph, instances)
    device = CpuDevice()
    try:
        found = harness.run(device, graph, instances, workers=2)
    finally:
        device.close()
    harness.assert_same(found, expected)


def test_an_epoch_asks_other_questions_than_the_one_before() -> None:
    def epoch(seed: int, number: int, limit: int = 0) -> list[bytes]:
        instances = MODEL.training(SMALL, seed, number, limit)
        return [i.tables["story_target"].tobytes() + i.tables["answer"].tobytes() for i in instances]

    assert len(epoch(1, 1)) == MODEL.training(SMALL, 1, 1).size == 100
    assert epoch(1, 1, 20) == epoch(1, 1)[:20]
    assert not set(epoch(1, 1)) & set(epoch(1, 2))
    assert epoch(1, 1) != epoch(2, 1)
    assert MODEL.training(Babi15Config(sample=True, fresh=7), 1, 3).size == 7


def test_validation_is_the_same_every_time() -> None:
    first, second = (MODEL.validation(SMALL, 1, 30)[:] for _ in range(2))
    assert MODEL.validation(SMALL, 1).size == 1000
    for a, b in zip(first, second, strict=True):
        assert a.tables["story_target"].tobytes() == b.tables["story_target"].tobytes()
        assert a is not b, "each use has a number of its own"


def test_a_text_reads_as_a_graph_and_its_prediction_is_explained() -> None:
    instance = MODEL.parse(SMALL, TEXT)
    told = MODEL.explain(SMALL, instance, run(loaded(), instance))
    assert told["label"] == "mouse" and told["prediction"] in ("winona", "sheep", "mouse")
    assert 0 < told["probability_of_label"] < 1
    (instance,) = MODEL.validation(SMALL, 1, 1)
    assert MODEL.explain(SMALL, instance, run(loaded(), instance))["label"] in range(11)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no question; expected facts and a question, such as 'Emily is a cat."),
        (
            " ".join(f"name{i} is a cat." for i in range(12)) + " " + TEXT,
            "instance 0: story has 16 nodes, allowed are 11 (declared at",
        ),
    ],
)
def test_another_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        MODEL.parse(SMALL, text)
    assert str(caught.value).startswith(message)


def test_the_configuration_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"\[model\]: nodes is 7, expected an integer of 8 or more"):
        resolve(Babi15Config, {}, None, ["nodes=7"])
    with pytest.raises(ConfigError, match=r"\[model\]: fresh is 0, expected an integer of 1 or more"):
        resolve(Babi15Config, {}, None, ["fresh=0"])


def test_the_graph_has_the_widths_of_the_paper() -> None:
    graph = MODEL.graph(Babi15Config())
    shapes = {name: graph.nodes[name].params[0].shape for name in graph.parameterised}
    assert shapes == {"embed": (2, 5), "is": (5, 5), "fears": (5, 5), "update": (5, 15), "score": (10, 1)}


@pytest.mark.parametrize("nodes", [8, 54])
def test_it_deduces(nodes: int) -> None:
    settings = [f"nodes={nodes}", "sample=true", "valid_instances=300", "max_active_keys=1"]
    cfg = resolve(MODEL.config, MODEL.defaults, None, settings)
    summary = Trainer(MODEL, cfg, CpuDevice(), None).run()
    assert summary.valid["accuracy"] == 1.0
