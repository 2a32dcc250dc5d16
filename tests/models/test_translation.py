"""The translation: a decoder that begins where the encoder ends, and three tables that are sparse."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.data.zipf import dictionary
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from amphw.models import ModelError
from amphw.models.translation import Translation, TranslationConfig
from tests.conformance import harness

MODEL = Translation()
SMALL = TranslationConfig(vocabulary=40, embedding=5, hidden=4, samples=9, sentences=50)


def instances(count: int = 6) -> list[Instance]:
    found = [*MODEL.training(SMALL, 1, 1, count), MODEL.validation(SMALL, 1, 1)[0]]
    for number, instance in enumerate(found):
        instance.number = number
    return found


def test_a_translation_is_the_dictionarys_words_in_the_opposite_order() -> None:
    words = dictionary(40)
    for instance in instances():
        t = instance.tables
        assert t["target_word"].tolist() == [words[k] for k in t["source"][::-1]]
        assert t["target_before"].tolist() == [40, *t["target_word"][:-1]]


def test_the_multi_core_device_agrees_with_the_reference() -> None:
    graph, drawn = MODEL.graph(SMALL), instances()
    device = CpuDevice()
    try:
        found = harness.run(device, graph, drawn, workers=2)
    finally:
        device.close()
    harness.assert_same(found, harness.reference(graph, drawn))


def test_gradients_are_of_the_rows_that_are_read() -> None:
    graph, (instance, *_) = MODEL.graph(SMALL), instances()
    found = harness.reference(graph, [instance]).gradients
    t = instance.tables
    scored = {*t["target_word"].tolist(), *t["candidates_words"].tolist()}
    read = {
        "source.E": set(t["source"].tolist()),
        "target.E": set(t["target_before"].tolist()),
        "output.W": scored,
        "output.b": scored,
    }
    for name, rows in read.items():
        assert set(np.flatnonzero(found[name].any(axis=1)).tolist()) == rows, name


def test_validation_is_over_the_whole_vocabulary() -> None:
    valid = MODEL.validation(SMALL, 1)
    assert len(valid) == 500
    assert valid[0].tables["candidates_words"].tolist() == list(range(40))


def test_a_sentence_of_numbers_is_explained() -> None:
    instance = MODEL.parse(SMALL, "3 17 5")
    device = ReferenceDevice()
    device.load(MODEL.graph(SMALL), {"*": UpdateRule()}, DeviceOptions(2, 2, updates="off", seed=3))
    device.submit(0, 1, instance, Mode.PREDICT)
    (report,) = device.drain()
    told = MODEL.explain(SMALL, instance, report)
    words = dictionary(40)
    assert told["label"] == [words[5], words[17], words[3]]
    assert len(told["prediction"]) == len(told["log_probability"]) == 3


@pytest.mark.parametrize("text", ["", "40", "one", "1 2 3 4 5 6 7"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match="no sentence of 1 to 6 words; expected their numbers, 0 to 39"):
        MODEL.parse(SMALL, text)


def test_the_configuration_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"\[model\]: hidden is 0, expected an integer of 1 or more"):
        resolve(TranslationConfig, {}, None, ["hidden=0"])


def test_it_learns_to_translate() -> None:
    size = ["vocabulary=30", "sentences=3000", "embedding=24", "hidden=32", "samples=16"]
    size += ["valid_instances=100", "epochs=6", "target=none", "max_active_keys=4"]
    cfg = resolve(MODEL.config, MODEL.defaults, None, size)
    summary = Trainer(MODEL, cfg, CpuDevice(), None).run()
    # Whoever always says the most frequent word is right in a quarter of the cases.
    assert summary.valid["accuracy"] > 0.5
