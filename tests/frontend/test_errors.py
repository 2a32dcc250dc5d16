"""What cannot work is refused with the author's line, while the model is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe

SPEC = fe.Record(
    xs=fe.Sequence(fe.Floats(3), most=5),
    tokens=fe.Sequence(fe.Int(7), most=5),
    n=fe.Int(4),
    y=fe.Floats(3),
    g=fe.Graph({"kind": fe.Int(3)}, {"w": fe.Floats(1)}, most_nodes=3, most_edges=4),
    tree=fe.Tree({"word": fe.Int(3)}, most=4),
)
Model = Callable[[Any], Any]


def _outside(x: Any) -> Any:
    kept = []

    def body(h: Any, item: Any) -> Any:
        kept.append(h)
        return h + item

    fe.fold(body, fe.constant(3), x.xs)
    return kept[-1] + x.y


def _kept(x: Any) -> Any:
    kept = []
    fe.fold(lambda h, i: kept.append(h + i) or kept[-1], fe.constant(3), x.xs)  # type: ignore[func-returns-value]
    return kept[-1]


def _words(x: Any) -> Any:
    return fe.Embedding(3, 3)(x.tree.word)


def _inner_nodes(x: Any) -> Any:
    kept = []
    fe.fold_tree(_words(x), lambda a, b: kept.append(a + b) or a, x.tree)  # type: ignore[func-returns-value]
    return kept[-1]


def _kinds(x: Any) -> Any:
    return fe.Embedding(3, 3)(x.g.kind)


def _of_two_branches(x: Any) -> Any:
    kept = []

    def branch(v: Any) -> Any:
        kept.append(v * 2.0)
        return v

    fe.cond(x.n, branch, branch, x.y)
    return kept[0] + kept[1]


def _before_the_decision(x: Any) -> Any:
    kept = []

    def go_on(h: Any) -> Any:
        kept.append(fe.sum_columns(h))
        return kept[-1]

    return fe.while_loop(go_on, lambda h: h + kept[-1], x.y, most=2)


def _part_of_a_node(x: Any, body: Any) -> Any:
    return body(lambda h: h + fe.receive(fe.send(h, x.g), x.g), _kinds(x))


REFUSED: dict[str, tuple[Model, str]] = {
    "a function of numpy": (lambda x: np.tanh(x.y), "numpy's tanh is of arrays"),
    "an array of numpy": (lambda x: np.ones(3) + x.y, "numpy's add is of arrays"),
    "a division": (lambda x: x.y / 0.0, "divided by 0"),
    "a position beyond": (lambda x: fe.pick(x.xs.item, 5), "no position 5 .* 5 at most"),
    "a position before": (lambda x: fe.pick(x.xs.item, -1), "no position -1"),
    "a softmax over positions inside a layer": (
        lambda x: fe.Layer(lambda p, v: fe.softmax(v @ p.W, over=x.xs), lambda n: {"W": (n, n)})(x.xs),
        "not of those inside a layer",
    ),
    "a body of two": (
        lambda x: fe.fold(lambda h: h, x.y, x.xs),
        "a fold is called with 2 operands: too many",
    ),
    "a branch of none": (lambda x: fe.cond(x.n, lambda: x.y, lambda: x.y, x.y), "branch is called with 1 op"),
    "a branch of two": (
        lambda x: fe.fold_tree(_words(x), lambda both: both, x.tree),
        "branch of a tree is called with 2 operands",
    ),
    "what a tree has left behind": (lambda x: _inner_nodes(x) + x.y, "a branch of the choice at .* is used"),
    "length of a sequence": (lambda x: x.y * len(x.xs), "`length` is an Integer"),
    "over a name": (lambda x: fe.reduce(x.xs, over="xs"), "`over` is a sequence"),
    "comparison": (lambda x: 1 if x.y > 0 else 0, "not compared .* `above"),
    "matrix product": (lambda x: x.y @ x.y, "no `@`"),
    "power": (lambda x: x.y**2, "no `\\*\\*`"),
    "softmax of one": (lambda x: fe.softmax(x.y[:1]), "`over=` a sequence"),
    "another dimension": (
        lambda x: fe.reduce(x.xs, over=x.tokens),
        "does not depend on .*'tokens_length'",
    ),
    "what a loop has left behind": (lambda x: fe.reduce(_kept(x)), "a value from inside the loop"),
    "turns": (
        lambda x: fe.fold(lambda h, i: h + fe.reduce(i), x.y, fe.relu(x.xs.item)),
        "nothing to gather",
    ),
    "a graph": (lambda x: fe.send(x.y, x), "edges of a graph of the instance, or of several"),
    "messages of some nodes": (
        lambda x: _part_of_a_node(x, lambda step, h: fe.cond(x.g.kind > 1, step, lambda v: v, h)),
        "a branch of the choice at .*, which is another for every node",
    ),
    "messages of each node in its own time": (
        lambda x: _part_of_a_node(x, lambda step, h: fe.fold(step, h, length=x.g.kind)),
        "the loop at .*, which is another for every node",
    ),
    "an edge and every node": (
        lambda x: fe.receive(fe.send(_kinds(x), x.g) * _kinds(x), x.g),
        "on an edge and, beside it, on every node",
    ),
    "widths": (lambda x: x.y + fe.Linear(2)(x.y), "cannot add widths 3 and 2"),
    "columns": (lambda x: x.y[1:5], "a width of 3 has no columns 1:5"),
    "one column": (lambda x: x.y[0], "read by columns"),
    "parts": (lambda x: fe.split(x.y, 2), "3 columns cannot be split into 2"),
    "truth of a value": (lambda x: 1 if x.y else 0, "no truth while the model is built"),
    "truth of an Integer": (lambda x: 1 if x.n == 2 else 0, "use cond or switch"),
    "truth of a sequence": (lambda x: 1 if x.tokens == 3 else 0, "use cond or switch"),
    "item by number": (lambda x: x.xs[0], "no items by number"),
    "python loop": (lambda x: list(x.xs), "use fold or scan"),
    "unknown part": (lambda x: x.zs, "the instance has no 'zs' here"),
    "embedding of a value": (lambda x: fe.Embedding(3, 2)(x.y), "by one number a row, got 3"),
    "embedding too small": (lambda x: fe.Embedding(5, 2)(x.tokens), "5 rows is given an Integer of up to 6"),
    "labels": (lambda x: fe.classify(fe.Linear(2)(x.y), x.n), "2 logits for labels of up to 3"),
    "label of numbers": (lambda x: fe.classify(x.y, x.y), "takes logits and an Integer"),
    "target": (
        lambda x: fe.regress(fe.Linear(1)(x.y), x.y),
        "1 numbers cannot be compared with a target of 3",
    ),
    "state": (lambda x: fe.LSTM(3)(x.y, x.y), "LSTM takes a state of width 6 .* got 3"),
    "layer of a tuple": (lambda x: fe.Linear(2)((x.y, x.y)), "`concat` puts several values side by side"),
    "width of a layer": (lambda x: fe.Linear(0)(x.y), "has a width of 1 or more, got 0"),
    "a layer used in two ways": (
        lambda x: (lambda f: f(x.y) + f(x.y[:1])[:1])(fe.Linear(3)),
        "one layer is one",
    ),
    "function of an Integer": (lambda x: fe.exp(x.n), "`number\\(i\\)` makes one"),
    "sum with an Integer": (lambda x: x.y + x.n, "`number\\(i\\)` makes one"),
    "loop that grows": (
        lambda x: fe.fold(lambda h, i: fe.concat(h, i), fe.constant(3), x.xs),
        "widths 3, .* 6",
    ),
    "body of a scan": (lambda x: fe.scan(lambda h, i: h, x.y, x.xs), "returns \\(carry, y\\)"),
    "loop over nothing": (lambda x: fe.fold(lambda h: h, x.y), "or has a length"),
    "loop over a value": (lambda x: fe.fold(lambda h, i: h, x.y, x.y), "goes over positions"),
    "different positions": (lambda x: fe.fold(lambda h, i: h, x.y, (x.xs, x.tokens)), "different positions"),
    "loop without a bound": (lambda x: fe.while_loop(lambda h: h[:1], lambda h: h, x.y), "needs a bound"),
    "condition of two": (lambda x: fe.while_loop(lambda h: h, lambda h: h, x.y, most=2), "one number a row"),
    "condition of the instance": (lambda x: fe.while_loop(lambda h: x.n, lambda h: h, x.y, most=2), "`fold`"),
    "outside of its loop": (_outside, "a value from inside the loop at .* is used outside"),
    "of two branches": (_of_two_branches, "values from two branches"),
    "before the decision": (_before_the_decision, "not there behind the decision"),
    "branches": (
        lambda x: fe.switch(x.n, [lambda: x.y, lambda: x.y]),
        "2 branches for an Integer of up to 3",
    ),
    "scores": (lambda x: fe.switch(x.y, [lambda: x.y, lambda: x.y]), "3 scores choose among 2 branches"),
    "one branch": (lambda x: fe.switch(x.n, [lambda: x.y]), "two branches or more"),
    "widths of branches": (lambda x: fe.cond(x.n, lambda v: v, lambda v: v[:1], x.y), "`then` returns 3"),
    "reduction": (lambda x: fe.reduce(x.xs, "median"), "unknown reduction 'median'"),
    "nothing to reduce": (lambda x: fe.reduce(x.y), "nothing to gather"),
    "a message of an edge": (lambda x: _passed(x, lambda h: h * x.g.w), "the same along all of its edges"),
    "messages of types": (lambda x: _passed(x, [fe.Linear(3)] * 2), "2 messages for 1 types"),
    "maximum of rows": (lambda x: _passed(x, fe.Linear(3), how="max", form="rows"), "form='messages'"),
    "form": (lambda x: _passed(x, fe.Linear(3), form="dense"), "not by 'dense'"),
    "tree": (lambda x: fe.fold_tree(x.y, lambda a, b: a, x.tree), "is none for each of them; read a part"),
    "branch of a tree": (
        lambda x: fe.fold_tree(fe.Embedding(3, 2)(x.tree.word), lambda a, b: fe.concat(a, b), x.tree),
        "a leaf gives widths 2, a branch returns 4",
    ),
    "widths in a function": (
        lambda x: [x.y, fe.squared_error(x.y, x.y[:2])][1],
        r"operands do not fit: \[rows, 3\] and \[rows, 2\]",
    ),
    "shape of a parameter": (
        lambda x: fe.Layer(lambda p, v: v @ p.W, {"W": (4, 2)})(x.y),
        "the operand has width 3, parameter 'W' has 4 rows",
    ),
    "unknown parameter": (
        lambda x: fe.Layer(lambda p, v: v @ p.Q, lambda w: {"W": (w, 2)})(x.y),
        "no parameter 'Q'",
    ),
    "unused parameter": (
        lambda x: fe.Layer(lambda p, v: v @ p.W, lambda w: {"W": (w, 2), "b": (2,)})(x.y),
        r"the parameters \['b'\] are declared but never used",
    ),
    "program of a loss": (
        lambda x: fe.loss_of(lambda a, b: fe.squared_error(a, b), x.y, x.y[:2]),
        "operands do not fit",
    ),
    "number for a value": (
        lambda x: fe.concat(x.y, 1.0),
        r"got 1\.0; `constant\(width, 1\.0\)` makes one of a number",
    ),
    "list for a value": (lambda x: fe.concat([x.y, x.y]), "they are given one by one"),
    "nothing to put side by side": (lambda x: fe.concat(), "called with none"),
    "number alone": (lambda x: fe.sigmoid(0.5), r"sigmoid is of values of the model, got 0\.5"),
    "no parts": (lambda x: fe.split(x.y, 0), "3 columns cannot be split into 0"),
    "two Integers to look up": (
        lambda x: fe.Embedding(9, 2)(x.n, x.n),
        "takes an Integer .* got Integer.*, ",
    ),
    "a value to look up too": (lambda x: fe.Embedding(9, 2)(x.y, x.n), "takes an Integer .* got Tensor"),
    "minimum of both kinds": (lambda x: fe.minimum(x.n, x.y), "minimum is of values; `number"),
    "minimum with a fraction": (lambda x: fe.minimum(x.n, 0.5), "minimum is of values; `number"),
    "no such column": (lambda x: fe.column(x.y, 3), "column has 3 columns, and an Integer of up to 3"),
    "no such label": (lambda x: fe.is_best(x.y, x.n), "is_best has 3 columns, and an Integer of up to 3"),
    "width of a constant": (lambda x: fe.constant(2.0), r"a width of 1 or more, got 2\.0"),
    "loss of Integers": (lambda x: fe.loss_of(lambda n: n, x.n), "no value that is computed is in the loss"),
    "loss of a constant": (lambda x: fe.loss(fe.constant(1), seen=x.y), "no value that is computed is in"),
    "index of one row": (lambda x: fe.take(x.xs, x.n), "`pick` takes one row"),
    "index of rows and more": (
        lambda x: fe.take(x.xs, x.xs.position + x.tokens.position),
        "depends on x itself, whose rows are taken",
    ),
    "model's value in a layer": (
        lambda x: fe.Layer(lambda p, v: fe.maximum(v @ p.W, x.y), {"W": (3, 3)})(x.y),
        "make that an operand of the layer",
    ),
    "model's Integer in a layer": (
        lambda x: fe.Layer(lambda p, v: fe.column(v @ p.W, x.tokens.position), {"W": (3, 3)})(x.y),
        "make it an operand of the layer",
    ),
    "two losses of a name": (
        lambda x: [fe.regress(x.y, x.y), fe.regress(x.y, x.y)],
        "give this loss another name",
    ),
}


def _passed(x: Any, message: Any, **more: Any) -> Any:
    h = fe.Embedding(3, 3)(x.g.kind)
    return fe.message_passing(h, x.g, message, lambda h, m: h + m, steps=1, **more)


def lines(model: Model) -> set[int]:
    """Of the function, of those within it, and of the functions of this file that it calls."""

    def codes(code: CodeType) -> Iterator[CodeType]:
        yield code
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                yield from codes(inner)
        for name in code.co_names:
            if isinstance(called := globals().get(name), FunctionType):
                yield from codes(called.__code__)

    assert isinstance(model, FunctionType)
    return {line for code in codes(model.__code__) for _, _, line in code.co_lines() if line}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused_with_its_line(name: str) -> None:
    model, message = REFUSED[name]

    def with_loss(x: Any) -> None:
        y = model(x)
        if isinstance(y, fe.Tensor):
            fe.loss(fe.sum_columns(y))

    with pytest.raises(fe.FrontendError, match=message) as refused:
        fe.compile(with_loss, SPEC)
    assert refused.value.place.file == __file__
    assert refused.value.place.line in lines(model)


def test_a_model_without_a_loss_is_named() -> None:
    def model(x: Any) -> None:
        fe.Linear(2)(x.y)

    with pytest.raises(fe.FrontendError, match="the model has no loss") as refused:
        fe.compile(model, SPEC)
    assert (refused.value.place.file, refused.value.place.line) == (__file__, model.__code__.co_firstlineno)


def test_every_node_has_the_line_that_made_it() -> None:
    """Copies have that of what they copy, and what a shared layer needs around it that of its first use."""
    cell, head = fe.GRU(3), fe.Linear(4)

    def model(x: Any) -> None:
        y = x.y
        seen = fe.tanh(y)
        first = cell(y, seen)
        fe.classify(head(cell(first, seen)), x.n)

    compiled = fe.compile(model, SPEC)
    start = model.__code__.co_firstlineno
    found = {name: compiled.places[name].line - start for name in compiled.graph.nodes}
    assert found["tanh"] == found["tanh_copies"] == 2
    assert {found[n] for n in ("cell", "cell_x0", "cell_x1", "cell_site?")} == {3}
    assert found["loss"] == 4


def test_a_model_outside_of_compile_is_refused() -> None:
    with pytest.raises(fe.FrontendError, match="there is none here"):
        fe.Linear(2)(fe.Tensor(("a", "out"), 2, ()))
    with pytest.raises(fe.FrontendError, match="expected a specification"):
        fe.compile(lambda x: None, {"x": 3})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "declare,message",
    [
        (lambda: fe.Int(0), "no integer from 0 to below 0"),
        (lambda: fe.Floats(0), "a width is 1 or more"),
        (lambda: fe.Sequence(fe.Int(2), most=2, least=3), "from 3 to 2 items"),
        (lambda: fe.Tree({"x": fe.Int(2)}, {"x": fe.Int(2)}, most=3), "need other names"),
        (lambda: fe.Tree(most=3, arity=3), "arity of 2, or of 0"),
        (lambda: fe.Graph({"edges": fe.Int(2)}, most_nodes=3, most_edges=3), "need other names"),
        (lambda: fe.Record(x=3), "'x' is 3, expected"),  # type: ignore[arg-type]
    ],
)
def test_a_specification_that_cannot_work_is_refused(declare: Callable[[], Any], message: str) -> None:
    with pytest.raises(fe.FrontendError, match=message):
        declare()


def test_explain_says_where_each_field_comes_from() -> None:
    embed, cell, head = fe.Embedding(7, 2), fe.GRU(3), fe.Linear(4)

    def model(x: Any) -> None:
        fe.classify(head(fe.fold(cell, fe.constant(3), embed(x.tokens))), x.n)

    compiled = fe.compile(model, SPEC)
    told = compiled.explain()
    assert "t_2 < tokens_length (at most 5): the turn of a loop" in told
    assert "PPT cell" in told and "test_errors.py:" in told
    assert "where t_2 = tokens_length - 1" in told
    assert repr(compiled).startswith("Compiled(model: ")
