"""The examples: each is one file, a model in the language, which trains through the controller."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import amphw
from amphw.cpu_runtime import CpuDevice
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.models import get_model
from tests.daily import daily

FOLDER = Path(__file__).parents[1] / "examples"
# Fewer epochs than by default, and far more than it takes to be above these accuracies.
LEARNS = {
    "beam": (["epochs=2"], 0.7),
    "decoder": (["epochs=2"], 0.7),
    "depth": (["epochs=2", "model.sample=true"], 0.9),
    "experts": (["epochs=5"], 0.9),
    "graph_attention": (["epochs=1"], 0.6),
    "hops": (["epochs=1"], 0.9),
    "listops": (["epochs=3", "model.depth=2", "train_instances=4000"], 0.4),
    "parser": (["epochs=5"], 0.6),
    "paths": (["epochs=2"], 0.8),
    "pointer": (["epochs=2"], 0.8),
    "ponder": (["epochs=9"], 0.65),
    "tied": (["epochs=4"], 0.7),
    "transformer": (["epochs=1"], 0.7),
}


def test_every_example_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(LEARNS)


@pytest.mark.parametrize("name", daily(["ponder"], sorted({*LEARNS} - {"ponder"})))
def test_an_example_learns(name: str) -> None:
    overrides, accuracy = LEARNS[name]
    model = get_model(str(FOLDER / f"{name}.py"))
    cfg = resolve(model.config, model.defaults, None, ["trace=false", *overrides])
    device = CpuDevice()
    try:
        summary = Trainer(model, cfg, device, None).run()
    finally:
        device.close()
    assert summary.valid["accuracy"] > accuracy
    assert summary.messages["lost"] == 0


def test_a_beam_search_finds_the_most_probable_sentence() -> None:
    model = get_model(str(FOLDER / "beam.py"))
    beam = sys.modules[type(model).__module__]
    run = amphw.train(model, epochs=3, trace=False, progress=False)
    next_words = beam.next_words(run)
    greedy = beam.beam_search(next_words, width=1)
    best = beam.beam_search(next_words, width=4)
    assert greedy[0][1][0] == beam.WORDS.index("the")
    assert " ".join(beam.WORDS[word] for word in best[0][1]) == "every bird sings ."
    assert [score for score, _ in best] == sorted((score for score, _ in best), reverse=True)
    # A score is that of the whole sentence, as the model reads it at once, and no sentence has a better one.
    sentences = {tuple(beam.sentence(np.random.default_rng(seed))) for seed in range(50)}
    told = run.predict([beam.instance(words) for words in sentences])
    scores = {
        words: sum(each["next"][k][word] for k, word in enumerate(words))
        for words, each in zip(sentences, told, strict=True)
    }
    assert best[0][0] == pytest.approx(max(scores.values()), abs=1e-4)
    for score, words in (*greedy, *best):
        assert score == pytest.approx(scores[tuple(words)], abs=1e-4)
    assert greedy[0][0] < best[0][0]


@pytest.mark.parametrize("name", LEARNS)
def test_an_example_is_short(name: str) -> None:
    code = (FOLDER / f"{name}.py").read_text(encoding="utf-8").split('"""', 2)[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 60
