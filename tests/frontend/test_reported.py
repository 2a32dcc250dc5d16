"""What a model reports beside its loss: rows of its own, no part in training, and what predictions need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import amphw
from amphw import frontend as fe
from amphw.library.run import RunError

SPEC = fe.Record(words=fe.Sequence(fe.Int(9), most=6), label=fe.Int(3))
INSTANCE = {"words": [1, 5, 2, 2], "label": 2}
embed, score, head = fe.Embedding(9, 4), fe.Linear(1), fe.Linear(3)


def attend(x: Any) -> tuple[fe.Tensor, fe.Tensor]:
    h = embed(x.words)
    weights = fe.softmax(score(h), over=x.words)
    return head(fe.reduce(weights * h, "sum")), weights


def silent(x: Any) -> None:
    logits, _ = attend(x)
    fe.loss(fe.cross_entropy(logits, x.label))


def telling(x: Any) -> None:
    logits, weights = attend(x)
    fe.loss(fe.cross_entropy(logits, x.label), p=fe.softmax(logits))
    fe.report(weights=weights, logits=logits)


def test_a_report_has_rows_of_its_own_and_trains_nothing() -> None:
    plain, told = fe.compile(silent, SPEC), fe.compile(telling, SPEC)
    start = plain.parameters(seed=3)
    expected, found = plain.gradients(INSTANCE, start), told.gradients(INSTANCE, start)
    assert found.keys() == expected.keys()
    for node, values in expected.items():
        for name, value in values.items():
            np.testing.assert_allclose(found[node][name], value, rtol=1e-12, atol=1e-15)
    said = told.outputs(INSTANCE, start)
    assert said.keys() == {"loss", "weights", "logits"}
    assert said["loss"]["loss"].shape == (1, 1)
    assert said["weights"]["weights"].shape == (4, 1)
    assert said["logits"]["logits"].shape == (1, 3)
    assert said["weights"]["weights"].sum() == pytest.approx(1)


def of_words(x: Any) -> None:
    logits, weights = attend(x)
    fe.loss(fe.cross_entropy(logits, x.label), weights=weights)


def of_a_function(x: Any) -> None:
    logits, weights = attend(x)
    fe.loss_of(lambda y, w: [fe.sum_columns(y), w], logits, weights, reported=("weights",))


def of_positions(x: Any) -> None:
    logits, _ = attend(x)
    fe.loss(fe.cross_entropy(logits, x.label), weights=fe.number(x.words.position))


@pytest.mark.parametrize("model", [of_words, of_a_function, of_positions])
def test_what_has_more_rows_than_the_loss_is_refused(model: Callable[[Any], None]) -> None:
    with pytest.raises(
        fe.FrontendError,
        match=r"test_reported.py:\d+: what `weights` reports has a value at each position of w, .*"
        r"write fe.report\(weights=...\)",
    ):
        fe.compile(model, SPEC)


def test_what_has_fewer_rows_than_the_loss_is_reported_for_each() -> None:
    def model(x: Any) -> None:
        h = embed(x.words)
        fe.classify(head(h), x.words)
        fe.loss(fe.sum_columns(h * h), name="size", mean=fe.reduce(h, "mean"))

    spec = fe.Record(words=fe.Sequence(fe.Int(3), most=6))
    found = fe.compile(model, spec).outputs({"words": [0, 1, 2]})
    assert found["size"]["mean"].shape == (3, 4)


def only_reports(x: Any) -> None:
    fe.report(weights=attend(x)[1])


def reports_twice(x: Any) -> None:
    telling(x)
    fe.report(weights=attend(x)[1])


def reports_a_figure(x: Any) -> None:
    silent(x)
    fe.report(accuracy=attend(x)[0])


@pytest.mark.parametrize(
    ("model", "error"),
    [
        (only_reports, "the model has no loss"),
        (reports_twice, "`weights` is the name of a loss, of what one reports, or reported twice"),
        (reports_a_figure, "`accuracy` is the name of a loss"),
        (lambda x: fe.report(), "report takes values by name"),
        (lambda x: fe.report(one=fe.constant(1)), "`one` is a constant"),
        (lambda x: fe.report(label=x.label), "label"),
    ],
)
def test_a_report_that_cannot_be_is_refused(model: Callable[[Any], None], error: str) -> None:
    with pytest.raises(fe.FrontendError, match=error):
        fe.compile(model, SPEC)


def data(n: int = 60) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {"words": rng.integers(0, 9, rng.integers(1, 7)), "label": int(rng.integers(3))} for _ in range(n)
    ]


def train(model: Callable[[Any], None]) -> amphw.Run:
    return amphw.train(model, data(), spec=SPEC, epochs=1, progress=False, trace=False)


def test_predictions_have_all_that_is_reported_and_no_figure() -> None:
    def model(x: Any) -> None:
        telling(x)
        fe.classify(attend(x)[0], x.label, name="again")

    run = train(model)
    (found,) = run.predict([{"words": [1, 5, 2]}])
    assert found.keys() == {"p", "weights", "logits", "again.prediction"}
    assert found["weights"].shape == (3,)
    assert found["p"].shape == (1, 3)
    assert set(run.records[-1].valid) == {"loss", "again.loss", "again.accuracy"}


def test_a_model_that_reports_only_figures_predicts_nothing() -> None:
    def model(x: Any) -> None:
        logits, _ = attend(x)
        fe.loss(fe.cross_entropy(logits, x.label), accuracy=fe.is_best(logits, x.label))

    run = train(model)
    with pytest.raises(RunError, match=r"reports nothing but its losses.*fe.report\(y=y\)"):
        run.predict([{"words": [1]}])
    assert run.evaluate().keys() == {"loss", "accuracy"}
