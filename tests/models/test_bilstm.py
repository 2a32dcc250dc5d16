"""The tagger: its graph computes the recurrences of both levels, and only rare words are spelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.data.cache import is_local
from amphw.data.wikiner import TAGS, wikiner_file
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import DeviceOptions, Mode, Report
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from amphw.models import ModelError
from amphw.models.bilstm import BiLSTM, BiLSTMConfig
from tests.conformance import harness

MODEL = BiLSTM()
SMALL = BiLSTMConfig(
    embedding=4, letter=3, spelling=2, hidden=3, perceptron=4, vocabulary=12, frequent=2, sample=True
)
TEXTS = ("the", "Koville", "a Ülson saw Koville", "the old Mercorp built " + "x" * 100)

Parameters = Mapping[str, Mapping[str, np.ndarray]]


def drawn(cfg: BiLSTMConfig = SMALL) -> list[Instance]:
    instances = [*(MODEL.parse(cfg, text) for text in TEXTS), *MODEL.training(cfg, 1, 1, 4)]
    for number, instance in enumerate(instances):
        instance.number = number
    return instances


def loaded(cfg: BiLSTMConfig = SMALL, dtype: type = np.float32) -> ReferenceDevice:
    device = ReferenceDevice(dtype=dtype)
    device.load(MODEL.graph(cfg), {"*": UpdateRule()}, DeviceOptions(2, 2, updates="off", seed=3))
    return device


def run(device: ReferenceDevice, instance: Instance, mode: Mode = Mode.PREDICT) -> Report:
    device.submit(0, 1, instance, mode)
    (report,) = device.drain()
    return report


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(p: Mapping[str, np.ndarray], xs: np.ndarray) -> np.ndarray:
    """h after each row of xs."""
    width = p["b"].shape[0] // 4
    h, c, found = np.zeros(width), np.zeros(width), []
    for x in xs:
        i, f, o, u = np.split(np.concatenate([x, h]) @ p["W"] + p["b"], 4)
        c = sigmoid(i) * np.tanh(u) + sigmoid(f) * c
        h = sigmoid(o) * np.tanh(c)
        found.append(h)
    return np.stack(found)


def logits(p: Parameters, instance: Instance) -> np.ndarray:
    """[words, tags], word by word and letter by letter."""
    t = instance.tables
    words = []
    for word, first, length in zip(
        t["words_word"], t["words_letters_first"], t["words_letters_length"], strict=True
    ):
        letters = p["letter"]["E"][t["words_letters"][first : first + length]]
        ends = [lstm(p["spell_ahead"], letters)[-1], lstm(p["spell_back"], letters[::-1])[-1]]
        words.append(p["embed"]["E"][word] if word else np.concatenate(ends))
    x = np.stack(words)
    both = np.concatenate([lstm(p["read_ahead"], x), lstm(p["read_back"], x[::-1])[::-1]], axis=1)
    hidden = np.tanh(both @ p["hidden"]["W"] + p["hidden"]["b"])
    found: np.ndarray = hidden @ p["head"]["W"] + p["head"]["b"]
    return found


def test_the_graph_computes_the_recurrences() -> None:
    device = loaded(dtype=np.float64)
    p = {name: node.values for name, node in device.parameters().items()}
    for instance in drawn():
        report = run(device, instance)
        y, label = logits(p, instance), instance.tables["words_tag"]
        loss = np.log(np.exp(y).sum(axis=1)) - y[np.arange(len(y)), label]
        assert report.rows == {"loss": instance.attrs["words_length"]}
        np.testing.assert_allclose(report.outputs["loss"]["loss"][:, 0], loss, rtol=1e-9)
        assert (report.outputs["loss"]["prediction"][:, 0] == y.argmax(axis=1)).all()
        assert report.sums["loss"]["accuracy"] == (y.argmax(axis=1) == label).sum()


def test_the_multi_core_device_agrees_with_the_reference() -> None:
    graph, instances = MODEL.graph(SMALL), drawn()
    expected = harness.reference(graph, instances)
    device = CpuDevice()
    try:
        found = harness.run(device, graph, instances, workers=2)
    finally:
        device.close()
    harness.assert_same(found, expected)


def test_rare_words_are_spelled_and_others_are_looked_up() -> None:
    t = MODEL.parse(SMALL, "the Ülson").tables
    assert t["words_word"][0] > 0 and t["words_word"][1] == 0
    assert t["words_letters_length"].tolist() == [1, 7], "five letters and both ends"
    spelled = t["words_letters"][1:]
    assert spelled[0] == spelled[-1] == 1
    assert spelled[1] == 0, "a letter that the training set does not have"
    assert len(set(spelled[2:-1].tolist())) == 4 and spelled[2:-1].min() > 1


def test_a_branch_that_is_not_taken_learns_nothing() -> None:
    device = loaded()
    run(device, MODEL.parse(SMALL, "the a"), Mode.TRAIN)
    gradients = {name: node.gradients for name, node in device.parameters().items()}
    assert np.abs(gradients["embed"]["E"]).max() > 0
    for name in ("letter", "spell_ahead", "spell_back"):
        assert all(np.abs(g).max() == 0 for g in gradients[name].values())


def test_the_end_of_a_very_long_word_is_not_read() -> None:
    tables = [MODEL.parse(SMALL, "x" * n).tables["words_letters"].tolist() for n in (62, 63, 500)]
    assert tables[0] == tables[1] == tables[2] and len(tables[0]) == 64


def test_an_epoch_holds_every_sentence_once_in_an_order_of_its_own() -> None:
    def epoch(seed: int, number: int, limit: int = 0) -> list[bytes]:
        return [i.tables["words_letters"].tobytes() for i in MODEL.training(SMALL, seed, number, limit)]

    assert len(epoch(1, 1)) == MODEL.training(SMALL, 1, 1).size == 3000
    assert epoch(1, 1, 50) == epoch(1, 1, 50) != epoch(1, 2, 50)
    assert sorted(epoch(1, 1)) == sorted(epoch(1, 2))
    assert MODEL.validation(SMALL, 1).size == 500


@pytest.mark.parametrize(
    ("validation", "sizes"), [("wikigold", (10_000, 1_696)), ("wikiner", (9_000, 1_000))]
)
def test_the_real_sentences(validation: Literal["wikigold", "wikiner"], sizes: tuple[int, int]) -> None:
    if not all(is_local(wikiner_file(split)) for split in ("train", "dev")):
        pytest.skip("no local copy of WikiNER")
    cfg = BiLSTMConfig(validation=validation)
    assert (MODEL.training(cfg, 1, 1).size, MODEL.validation(cfg, 1).size) == sizes
    texts = [
        {i.tables["words_word"].tobytes() for i in s[:50]} for s in (MODEL.validation(cfg, k) for k in (1, 2))
    ]
    assert texts[0] == texts[1]


def test_a_sentence_is_encoded_once() -> None:
    first, second = (MODEL.validation(SMALL, 1, 1)[0] for _ in range(2))
    assert first is not second, "each use has a number of its own"
    assert first.tables["words_word"] is second.tables["words_word"]


def test_a_word_has_the_same_number_whatever_the_seed() -> None:
    common = MODEL.parse(SMALL, "the").tables["words_word"][0]
    for seed in (0, 1, 2):
        words = np.concatenate([i.tables["words_word"] for i in MODEL.training(SMALL, seed, 1, 200)])
        assert common in words


def test_dropout_acts_in_training_alone() -> None:
    cfg = BiLSTMConfig(
        embedding=4, letter=3, spelling=2, hidden=3, perceptron=4, vocabulary=12, sample=True, dropout=0.5
    )
    dropping, instance = loaded(cfg), MODEL.parse(cfg, TEXTS[2])
    inferred = run(dropping, instance).sums["loss"]["loss"]
    assert run(dropping, instance).sums["loss"]["loss"] == inferred
    assert abs(run(dropping, instance, Mode.TRAIN).sums["loss"]["loss"] - inferred) > 1e-3


def test_a_text_reads_as_a_sentence_and_its_prediction_is_explained() -> None:
    instance = MODEL.parse(SMALL, "the Koville")
    told = MODEL.explain(SMALL, instance, run(loaded(), instance))
    assert told.keys() == {"prediction", "tags"}
    assert set(told["tags"]) <= set(TAGS)
    assert told["prediction"] == f"the|{told['tags'][0]} Koville|{told['tags'][1]}"
    (instance,) = MODEL.validation(SMALL, 1, 1)
    told = MODEL.explain(SMALL, instance, run(loaded(), instance))
    assert len(told["label"]) == len(told["prediction"]) == instance.attrs["words_length"]


@pytest.mark.parametrize(("text", "count"), [(" ", 0), ("a " * 257, 257)])
def test_another_text_is_refused(text: str, count: int) -> None:
    with pytest.raises(ModelError, match=f"^the line has {count} words, expected a sentence of 1 to 256$"):
        MODEL.parse(SMALL, text)


def test_the_configuration_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"\[model\]: letter is 0, expected an integer of 1 or more"):
        resolve(BiLSTMConfig, {}, None, ["letter=0"])
    with pytest.raises(ConfigError, match=r"\[model\]: embedding is 100 and spelling is 64: two LSTMs over"):
        resolve(BiLSTMConfig, {}, None, ["embedding=100"])
    with pytest.raises(ConfigError, match=r"\[model\]: dropout is 1\.0, expected a number from 0 to below 1"):
        resolve(BiLSTMConfig, {}, None, ["dropout=1.0"])


def test_the_full_graph_has_the_widths_of_the_benchmark() -> None:
    graph = MODEL.graph(BiLSTMConfig())
    shapes = {name: graph.nodes[name].params[0].shape for name in graph.parameterised}
    assert shapes == {
        "letter": (256, 20),
        "spell_ahead": (84, 256),
        "spell_back": (84, 256),
        "embed": (4652, 128),
        "read_ahead": (178, 200),
        "read_back": (178, 200),
        "hidden": (100, 32),
        "head": (32, 9),
    }


def test_it_learns_the_generated_sentences() -> None:
    size = ["embedding=32", "spelling=16", "letter=8", "hidden=16", "vocabulary=30", "perceptron=16"]
    size += ["sample=true", "train_instances=1000", "valid_instances=100", "epochs=8"]
    size += ["target=none"]  # it may reach that before it has seen enough
    size += ["min_update_interval=50", "lr=0.01", "max_active_keys=4"]
    cfg = resolve(MODEL.config, MODEL.defaults, None, size)
    summary = Trainer(MODEL, cfg, CpuDevice(), None).run()
    assert summary.history[-1].train_loss < 0.5 * summary.history[0].train_loss
    assert summary.valid["accuracy"] > 0.85
