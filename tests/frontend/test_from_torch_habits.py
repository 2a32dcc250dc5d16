"""What somebody who knows PyTorch writes first, and what is said to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import amphw
from amphw import frontend as fe
from amphw.ir.config_fields import ConfigError
from tests.frontend.running import computed

SPEC = fe.Record(words=fe.Sequence(fe.Int(9), most=5), label=fe.Int(3))
embed, gru, lstm, rnn, head = fe.Embedding(9, 6), fe.GRU(6), fe.LSTM(6), fe.RNN(4), fe.Linear(3)


def hs(x: Any) -> Any:
    return embed(x.words)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (lambda x: gru(hs(x)), r"GRU is called with a state .*`fold\(cell, constant\(width\), x\)`"),
        (lambda x: lstm(hs(x)), r"LSTM is called with a state .*`fold\(cell, constant\(2 \* width\), x\)`"),
        (lambda x: rnn(hs(x)), r"RNN is called with a state .*`scan\(cell.step, constant\(width\), x\)`"),
        (lambda x: fe.scan(gru, fe.constant(6), hs(x)), r"returns \(carry, y\).*it is `cell.step`"),
        (lambda x: hs(x)[-1], r"`pick\(x, length - 1\)` is that of one position, `column\(x, i\)`"),
        (lambda x: hs(x)[0], r"`pick\(x, position\)`"),
        (lambda x: fe.fold(gru, np.zeros(6), hs(x)), r"got ndarray, .* `constant\(6\)` is that"),
        (lambda x: fe.fold(gru, np.ones((1, 6)), hs(x)), r"`constant\(6, 1\)` is that, without a batch"),
        (lambda x: fe.fold(gru, np.arange(6.0), hs(x)), r"`constant\(width, number\)` is the same number"),
        (lambda x: fe.fold(gru, 0.0, hs(x)), r"`constant\(width, 0.0\)` makes one of a number"),
        (
            lambda x: fe.softmax(hs(x), dim=1),
            r"softmax has no `dim=`; without `over=` it is over the columns",
        ),
        (lambda x: fe.reduce(hs(x), "mean", axis=0), r"reduce has no `axis=`; `over=x.words` names"),
        (lambda x: fe.softmax(hs(x), other=1), r"softmax has no `other=`"),
        (lambda x: fe.selu(hs(x)), r"`elu\(x, 1.6733\) \* 1.0507` is it"),
        (lambda x: fe.clamp(hs(x)), r"`maximum\(minimum\(x, high\), low\)` is it"),
    ],
)
def test_habits_are_told_what_to_write(value: Callable[[Any], Any], error: str) -> None:
    with pytest.raises(fe.FrontendError, match=error) as found:
        fe.compile(lambda x: fe.classify(head(value(x)), x.label), SPEC)
    assert "test_from_torch_habits.py" in str(found.value)


def test_an_elu_is_finite_on_both_sides() -> None:
    xs = np.array([[-800.0, -1.0, -0.0, 0.5, 800.0]])
    for alpha in (1.0, 0.3):
        found, _ = computed(lambda x, a=alpha: fe.elu(x.v, a), fe.Record(v=fe.Floats(5)), {"v": xs[0]})  # type: ignore[misc]
        expected = np.where(xs > 0, xs, alpha * np.expm1(np.minimum(xs, 0)))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"batch_size": 32}, r"there is no batch_size here; .*min_update_interval=32"),
        ({"bs": 2}, r"there is no bs here"),
        ({"learning_rate": 0.1}, r"it is lr=0.01 \(update.lr\)"),
        ({"max_grad_norm": 1.0}, r"clip_norm=1.0 \(train.clip_norm\)"),
        ({"shuffle": True}, "a new order in every epoch"),
    ],
)
def test_settings_of_others_are_told_their_names_here(settings: dict[str, Any], error: str) -> None:
    data = [{"words": [1, 2], "label": 1}] * 20

    def model(x: Any) -> None:
        fe.classify(head(fe.reduce(hs(x))), x.label)

    with pytest.raises(ConfigError, match=error):
        amphw.train(model, data, spec=SPEC, progress=False, **settings)


def test_the_manual_has_the_names_and_shapes_of_the_layers_parameters() -> None:
    def model(x: Any) -> None:
        h = fe.LayerNorm(name="norm")(fe.RMSNorm(name="rms")(hs(x)))
        h = fe.fold(fe.GRU(4, name="cell"), fe.constant(4), h)
        fe.classify(
            head(fe.RNN(5, name="plain")(fe.LSTM(5, name="long")(fe.constant(10), h)[:5], h)), x.label
        )

    found = fe.compile(model, SPEC).parameters()
    shapes = {node: {name: v.shape for name, v in values.items()} for node, values in found.items()}
    assert shapes["norm"] == {"scale": (6,), "shift": (6,)} and shapes["rms"] == {"scale": (6,)}
    assert shapes["cell"] == {"Wi": (6, 12), "bi": (12,), "Wh": (4, 12), "bh": (12,)}
    assert shapes["long"] == {"W": (9, 20), "b": (20,)} and shapes["plain"] == {"W": (9, 5), "b": (5,)}


def test_an_rnn_may_run_on_its_state_alone() -> None:
    def model(x: Any) -> None:
        turned = fe.fold(fe.RNN(6, name="turns"), fe.reduce(hs(x)), length=3)
        fe.classify(head(turned), x.label)

    assert fe.compile(model, SPEC).parameters()["turns"]["W"].shape == (6, 6)
