"""The language model: its sampled softmax, its full one, and that updates touch few rows of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.data.zipf import Language
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import DeviceOptions, Mode, Report
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from amphw.models import ModelError
from amphw.models.language_model import LanguageModel, LanguageModelConfig
from tests.conformance import harness
from tests.daily import daily

MODEL = LanguageModel()
SIZES: dict[str, Any] = {"vocabulary": 40, "embedding": 5, "hidden": 4, "samples": 9, "sentences": 50}
SMALL = LanguageModelConfig(**SIZES)

Parameters = Mapping[str, Mapping[str, np.ndarray]]


def instances(cfg: LanguageModelConfig = SMALL, count: int = 6) -> list[Instance]:
    """Some to train on, and one with the vocabulary as candidates."""
    found = [*MODEL.training(cfg, 1, 1, count), MODEL.validation(cfg, 1, 1)[0]]
    for number, instance in enumerate(found):
        instance.number = number
    return found


def loaded(cfg: LanguageModelConfig = SMALL, dtype: type = np.float64) -> ReferenceDevice:
    device = ReferenceDevice(dtype=dtype)
    device.load(MODEL.graph(cfg), {"*": UpdateRule()}, DeviceOptions(2, 2, updates="off", seed=3))
    return device


def run(device: ReferenceDevice, instance: Instance, mode: Mode = Mode.PREDICT) -> Report:
    device.submit(0, 1, instance, mode)
    (report,) = device.drain()
    return report


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def states(p: Parameters, words: np.ndarray, cell: str) -> np.ndarray:
    """h after each word."""
    w = p["cell"]
    width = SMALL.hidden
    h, c, found = np.zeros(width), np.zeros(width), []
    for x in p["embed"]["E"][words]:
        if cell == "lstm":
            i, f, o, u = np.split(np.concatenate([x, h]) @ w["W"] + w["b"], 4)
            c = sigmoid(i) * np.tanh(u) + sigmoid(f) * c
            h = sigmoid(o) * np.tanh(c)
        else:
            (ri, zi, ni), (rh, zh, nh) = (
                np.split(x @ w["Wi"] + w["bi"], 3),
                np.split(h @ w["Wh"] + w["bh"], 3),
            )
            z = sigmoid(zi + zh)
            h = (1 - z) * np.tanh(ni + sigmoid(ri + rh) * nh) + z * h
        found.append(h)
    return np.stack(found)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_graph_computes_the_sampled_softmax_and_the_full_one(cell: Any) -> None:
    cfg = LanguageModelConfig(**SIZES, cell=cell)
    device = loaded(cfg)
    p = {name: node.values for name, node in device.parameters().items()}
    for instance in instances(cfg):
        t, report = instance.tables, run(device, instance)
        sampled = bool(t["candidates_drawn"][0])
        losses, right, best = [], [], []
        for h, word in zip(states(p, t["words_word"], cell), t["words_next"], strict=True):
            among = [int(word), *(int(k) for k in t["candidates_words"] if k != word)]
            scores = p["output"]["W"][among] @ h + p["output"]["b"][among, 0]
            scores = scores + sampled * np.log(np.array(among) + 1.0)
            losses.append(np.log(np.exp(scores).sum()) - scores[0])
            right.append(scores.argmax() == 0)
            best.append(among[scores.argmax()])
        found = report.outputs["loss"]
        assert report.rows == {"loss": instance.attrs["words_length"]}
        np.testing.assert_allclose(found["loss"][:, 0], losses, rtol=1e-6)
        assert found["accuracy"][:, 0].tolist() == right
        assert found["prediction"][:, 0].tolist() == best


def test_with_the_vocabulary_as_candidates_it_is_the_same_as_a_full_softmax() -> None:
    full = LanguageModelConfig(**SIZES, softmax="full")
    sampled, other = loaded(), loaded(full)
    values = {name: node.values for name, node in sampled.parameters().items()}
    theirs = other.parameters()
    for name in ("embed", "cell"):
        theirs[name].values = dict(values[name])
    theirs["output"].values = {"W": values["output"]["W"].T.copy(), "b": values["output"]["b"][:, 0].copy()}
    for a, b in zip(MODEL.validation(SMALL, 1, 4), MODEL.validation(full, 1, 4), strict=True):
        one, two = run(sampled, a), run(other, b)
        for name in ("loss", "accuracy", "prediction"):
            np.testing.assert_allclose(one.outputs["loss"][name], two.outputs["loss"][name], rtol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"cell": "gru"}, {"softmax": "full"}])
def test_the_multi_core_device_agrees_with_the_reference(settings: dict[str, Any]) -> None:
    cfg = LanguageModelConfig(**SIZES, **settings)
    graph, drawn = MODEL.graph(cfg), instances(cfg)
    device = CpuDevice()
    try:
        found = harness.run(device, graph, drawn, workers=2)
    finally:
        device.close()
    harness.assert_same(found, harness.reference(graph, drawn))


def test_an_update_changes_the_rows_of_words_and_candidates_alone() -> None:
    graph = MODEL.graph(SMALL)
    (instance, *_) = instances()
    rule = UpdateRule(optimizer="adagrad", lr=0.1)
    device = CpuDevice()
    try:
        before = harness.run(device, graph, [], rule=rule).parameters
        after = harness.run(device, graph, [instance], rule=rule, updates="self").parameters
    finally:
        device.close()
    t = instance.tables
    read = {"embed.E": set(t["words_word"].tolist())}
    scored = set(t["words_next"].tolist()) | set(t["candidates_words"].tolist())
    read |= {"output.W": scored, "output.b": scored}
    for name, rows in read.items():
        changed = np.flatnonzero((before[name] != after[name]).any(axis=1))
        assert set(changed.tolist()) == rows, name


def test_candidates_differ_by_epoch_and_seed_and_not_by_their_place_in_the_order() -> None:
    def drawn(seed: int, epoch: int, limit: int = 0) -> dict[bytes, bytes]:
        found = MODEL.training(SMALL, seed, epoch, limit)
        return {i.tables["words_word"].tobytes(): i.tables["candidates_words"].tobytes() for i in found}

    assert drawn(1, 1) == drawn(1, 1)
    assert drawn(1, 1).keys() == drawn(1, 2).keys() and drawn(1, 1) != drawn(1, 2)
    assert drawn(1, 1).keys() != drawn(2, 1).keys()
    assert drawn(1, 1, 10).items() <= drawn(1, 1).items()
    assert {len(v) for v in drawn(1, 1).values()} == {4 * SMALL.samples}


def test_validation_is_about_other_sentences_and_the_whole_vocabulary() -> None:
    valid = MODEL.validation(SMALL, 1)
    assert len(valid) == 500
    for instance in valid[:3]:
        assert instance.tables["candidates_words"].tolist() == list(range(40))
        assert instance.tables["candidates_drawn"].tolist() == [0]
    seen = {i.tables["words_word"].tobytes() for i in MODEL.training(SMALL, 1, 1)}
    assert sum(i.tables["words_word"].tobytes() in seen for i in valid) < 50


def test_a_sentence_of_numbers_is_explained() -> None:
    instance = MODEL.parse(SMALL, " 3 0 39 ")
    told = MODEL.explain(SMALL, instance, run(loaded(), instance))
    assert told["label"] == [0, 39]
    assert len(told["prediction"]) == 2 and set(told["prediction"]) <= set(range(40))
    assert all(x < 0 for x in told["log_probability"])


@pytest.mark.parametrize("text", ["", "3", "3 40", "3 -1", "3 x", " ".join("1" * 21)])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(
        ModelError, match="no sentence of 2 to 20 words; expected their numbers, 0 to 39, such"
    ):
        MODEL.parse(SMALL, text)


def test_the_configuration_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"\[model\]: samples is 0, expected an integer of 1 or more"):
        resolve(LanguageModelConfig, {}, None, ["samples=0"])
    with pytest.raises(ConfigError, match=r"\[model\]: vocabulary is 1, expected an integer of 2 or more"):
        resolve(LanguageModelConfig, {}, None, ["vocabulary=1"])


def test_what_a_loss_is_to_be_compared_with_is_said() -> None:
    (note,) = MODEL.notes(LanguageModelConfig())
    assert "7.56" in note and "4.85" in note


@pytest.mark.parametrize("softmax", daily(["sampled"], ["full"]))
def test_it_falls_below_the_unigram_model(softmax: str) -> None:
    size = [
        "vocabulary=300",
        "sentences=3000",
        "embedding=24",
        "hidden=24",
        f"softmax={softmax}",
        "samples=32",
    ]
    size += ["valid_instances=100", "epochs=4", "target=none", "max_active_keys=4"]
    cfg = resolve(MODEL.config, MODEL.defaults, None, size)
    summary = Trainer(MODEL, cfg, CpuDevice(), None).run()
    assert summary.valid["loss"] < Language(300).entropy - 0.4
    assert summary.valid["loss"] > Language(300).conditional - 0.2, "a loss that no model can have"
