"""The Transformer encoder: what it computes, what it is asked, and that it learns."""

from __future__ import annotations

from collections import Counter

import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from amphw.models import ModelError
from amphw.models.transformer import LEAST, LETTERS, Transformer, TransformerConfig
from tests.conformance import harness

MODEL = Transformer()
SMALL = TransformerConfig(width=8, heads=2, inner=6, sequences=60)


def test_each_position_is_asked_for_the_most_frequent_other_letter() -> None:
    lengths = set()
    for instance in MODEL.training(SMALL, 1, 1):
        letters, answers = (instance.tables[f"text_{name}"].tolist() for name in ("letter", "other"))
        for letter, answer in zip(letters, answers, strict=True):
            others = Counter(each for each in letters if each != letter)
            most = max(others.values(), default=0)
            assert answer == min((k for k, n in others.items() if n == most), default=letter)
        assert set(letters) <= set(range(LETTERS)) and LEAST <= len(letters) <= SMALL.length
        lengths.add(len(letters))
    assert len(lengths) > 10


def test_validation_is_about_other_sequences() -> None:
    seen = {i.tables["text_letter"].tobytes() for i in MODEL.training(SMALL, 1, 1)}
    valid = MODEL.validation(SMALL, 1)
    assert len(valid) == 500
    assert sum(i.tables["text_letter"].tobytes() in seen for i in valid) < 50


@pytest.mark.parametrize("layers", [1, 2])
def test_the_multi_core_device_agrees_with_the_reference(layers: int) -> None:
    cfg = TransformerConfig(layers=layers, width=8, heads=2, inner=6, sequences=60)
    graph, drawn = MODEL.graph(cfg), MODEL.training(cfg, 1, 1, 5)[:5]
    for number, instance in enumerate(drawn):
        instance.number = number
    device = CpuDevice()
    try:
        found = harness.run(device, graph, drawn, workers=2)
    finally:
        device.close()
    harness.assert_same(found, harness.reference(graph, drawn))


def test_what_is_said_of_a_word_is_explained() -> None:
    instance = MODEL.parse(SMALL, " banana ")
    device = ReferenceDevice()
    device.load(MODEL.graph(SMALL), {"*": UpdateRule()}, DeviceOptions(1, 1, updates="off", seed=3))
    device.submit(0, 1, instance, Mode.PREDICT)
    (report,) = device.drain()
    told = MODEL.explain(SMALL, instance, report)
    assert told["label"] == "ananan"
    assert len(told["prediction"]) == 6 and told["prediction"].isalpha()


@pytest.mark.parametrize("text", ["", "Banana", "ba na", "b" * 49, "3"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match="no word of 1 to 48 letters from a to z, such as 'banana'"):
        MODEL.parse(SMALL, text)


def test_the_configuration_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"\[model\]: layers is 0, expected an integer of 1 or more"):
        resolve(TransformerConfig, {}, None, ["layers=0"])
    with pytest.raises(ConfigError, match=r"\[model\]: heads is 3, expected a divisor of width, which is 8"):
        resolve(TransformerConfig, {}, None, ["heads=3", "width=8"])


def test_it_learns() -> None:
    size = ["width=16", "heads=2", "inner=32", "length=8", "sequences=2000", "valid_instances=100"]
    size += ["epochs=4", "target=none", "max_active_keys=4", "lr=0.005", "min_update_interval=100"]
    cfg = resolve(MODEL.config, MODEL.defaults, None, size)
    summary = Trainer(MODEL, cfg, CpuDevice(), None).run()
    assert summary.valid["accuracy"] > 0.4, "no better than a guess among the letters that there are"
