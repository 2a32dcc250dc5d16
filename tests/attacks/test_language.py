"""What is natural in PyTorch or numpy and is not in the language: an error with the line and a remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from amphw import frontend as fe

SPEC = fe.Record(
    words=fe.Sequence(fe.Record(t=fe.Int(7)), most=5),
    xs=fe.Sequence(fe.Floats(3), most=5),
    y=fe.Floats(3),
    n=fe.Int(4),
)


def _assigned(x: Any) -> None:
    x.y[0:1] = 2.0


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "transposed": (lambda x: x.y @ x.y.T, "no `T`; Linear multiplies"),
    "array @ value": (lambda x: [1.0] @ x.y, "no `@`"),
    "sequence @ value": (lambda x: x.xs @ x.y, "no `@`"),
    "mean": (lambda x: x.y.mean(), "reduce(x, "),
    "mean of a sequence": (lambda x: x.xs.mean(), "reduce(x, "),
    "relu": (lambda x: x.y.relu(), "write `relu(x)`"),
    "shape": (lambda x: x.y.shape, "`x.width`"),
    "misspelt": (lambda x: x.y.sigmoyd(), "did you mean sigmoid"),
    "misspelt width": (lambda x: x.y.widht, "did you mean width"),
    "attribute of an Integer": (lambda x: x.n.relu(), "an Integer has no `relu`"),
    "assigned": (_assigned, "`concat` puts"),
    "remainder": (lambda x: x.y % 2, "`/` divides"),
    "whole part": (lambda x: 7 // x.y, "`/` divides"),
    "both": (lambda x: divmod(x.y, 2), "`/` divides"),
    "rounded": (lambda x: round(x.y), "no number of Python"),
    "formatted": (lambda x: f"{x.y:.2f}", "no number of Python"),
    "float": (lambda x: float(x.y), "no number of Python"),
    "int of an Integer": (lambda x: int(x.n), "differs from instance to instance"),
    "float of an Integer": (lambda x: float(x.n), "differs from instance to instance"),
    "abs": (lambda x: abs(x.y), "`absolute(x)`"),
    "iterated": (lambda x: list(x.y), "`fold` and `scan`"),
    "len": (lambda x: len(x.y), "`x.width`"),
    "Integer in a Linear": (
        lambda x: fe.Linear(2)(x.words.t),
        "Linear cannot compute with the Integer .*Embedding",
    ),
    "Integer beside a value": (lambda x: fe.Linear(2)(x.y, x.n), "Linear cannot compute with the Integer"),
    "Integer in a GRU": (lambda x: fe.GRU(3)(x.y, x.n), "GRU cannot compute with the Integer"),
    "silu": (lambda x: fe.silu(x.y), "amphw.frontend has no `silu`; .*sigmoid"),
    "argmax": (lambda x: x.y.argmax(), "write `argmax(x)`"),
    "fe.mean": (lambda x: fe.mean(x.y), "reduce(x, "),
    "misspelt function": (lambda x: fe.sigmod(x.y), "did you mean sigmoid"),
    "widths of cond": (
        lambda x: fe.cond(x.n, lambda: fe.constant(2), lambda: fe.constant(3)),
        "`otherwise` returns widths 3, `then` returns 2",
    ),
    "widths of a decided cond": (
        lambda x: fe.cond(x.y[:1], lambda: fe.constant(2), lambda: fe.constant(3)),
        "`otherwise` returns widths 3, `then` returns 2",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_in_the_language_has_a_line_and_a_remedy(name: str) -> None:
    model, message = REFUSED[name]
    with pytest.raises(fe.FrontendError) as refused:
        fe.compile(model, SPEC)
    assert re.search(message.replace("(", r"\(").replace(")", r"\)"), str(refused.value)), refused.value
    assert refused.value.place.file == __file__
    assert refused.value.place.line >= model.__code__.co_firstlineno


def test_names_that_python_asks_for_are_answered_as_usual() -> None:
    assert not hasattr(fe, "silu")
    assert not hasattr(fe, "__wrapped__")


def test_what_may_not_be_meant_is_noted_with_its_line() -> None:
    embed, query, head, idle = fe.Embedding(7, 3), fe.Linear(3), fe.Linear(4), fe.Linear(2, name="idle")

    def model(x: Any) -> None:
        idle(x.y)
        q, k = query(embed(x.words.t)), x.xs
        fe.loss(fe.sum_columns(q * k), name="pairs")
        fe.classify(head(embed(x.words.t)), x.n)

    with pytest.warns(fe.FrontendNote) as noted:
        fe.compile(model, SPEC)
    start = model.__code__.co_firstlineno
    found = {int(str(w.message).split(":")[1]) - start: str(w.message) for w in noted}
    assert set(found) == {1, 3, 4}
    assert "no loss depends on the layer 'idle'" in found[1]
    assert "every pair" in found[3]
    assert "one label is compared with the logits at every position" in found[4]
