"""Parameters that several functions share: what they compute, their gradients, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.ir import functions as f
from amphw.ir.expr import Const
from amphw.ir.passes import replicate
from amphw.ir.sparse import dense_tables, sparse_parameters

V, W = 6, 4
SPEC = fe.Record(words=fe.Sequence(fe.Int(V), most=5), next=fe.Int(V), x=fe.Floats(W))
PLAIN = {"words": [1, 4, 1], "next": 2, "x": np.array([0.3, -0.2, 0.5, 0.1])}
NO_ATTRIBUTE = r"the parameters of a layer \(Embedding\) are not its attributes, got '{}'; .*several fun"


def tied_sum() -> fe.Compiled:
    """The rows of all words, added to x, and the logits of the sum."""
    embed = fe.Embedding(V, W, init="normal:0.7")
    return fe.compile(lambda x: fe.classify(embed.attend(fe.reduce(embed(x.words)) + x.x), x.next), SPEC)


def test_attend_is_the_product_with_the_transposed_table() -> None:
    compiled = tied_sum()
    table = compiled.parameters()["embed"]["E"].astype(np.float64)
    logits = (table[PLAIN["words"]].sum(axis=0) + PLAIN["x"]) @ table.T
    expected = np.log(np.exp(logits).sum()) - logits[PLAIN["next"]]
    np.testing.assert_allclose(compiled.outputs(PLAIN)["loss"]["loss"], [[expected]], rtol=1e-6)


def test_one_node_owns_the_table_and_its_drawing_has_it_once() -> None:
    graph = tied_sum().graph
    assert list(graph.parameterised) == ["embed"] and graph.nodes["embed"].params[0].shape == (V, W)
    assert str(graph).count("owns E[6, 4]") == 1
    assert "embed" in graph._repr_svg_()


def test_gradients_are_those_of_autograd() -> None:
    torch = pytest.importorskip("torch")
    compiled = tied_sum()
    table = torch.tensor(compiled.parameters()["embed"]["E"], dtype=torch.float64, requires_grad=True)
    h = table[PLAIN["words"]].sum(dim=0) + torch.tensor(PLAIN["x"])
    torch.nn.functional.cross_entropy((h @ table.T)[None], torch.tensor([PLAIN["next"]])).backward()
    np.testing.assert_allclose(compiled.gradients(PLAIN)["embed"]["E"], table.grad.numpy(), rtol=1e-6)


def test_a_class_of_ones_own_has_functions_by_a_decorator() -> None:
    class Tied(fe.Layer):
        def shapes(self, *widths: int) -> Any:
            return {"W": (W, 3), "b": fe.parameter((W,), "zeros")}

        def function(self, p: Any, *operands: Any) -> Any:
            return operands[0] @ p.W

        @fe.layer_function
        def back(self, p: Any, h: Any) -> Any:
            """h W' + b."""
            return h @ p.W.T + p.b

    tied = Tied(name="tied")
    assert tied.back.__doc__ == "h W' + b."
    compiled = fe.compile(lambda x: fe.regress(tied.back(tied(x.x)), x.x), SPEC)
    w = compiled.parameters()["tied"]["W"]
    np.testing.assert_allclose(
        compiled.outputs(PLAIN)["loss"]["prediction"], [PLAIN["x"] @ w @ w.T], rtol=1e-5, atol=1e-6
    )


def test_functions_that_no_loss_depends_on_leave_their_parameters_out() -> None:
    layer = fe.Layer(
        shapes={"W": (W, 3), "b": (3,)}, used=lambda p, x: x @ p.W, other=lambda p, x: x @ p.W + p.b
    )
    compiled = fe.compile(lambda x: fe.loss(fe.sum_columns(layer.used(x.x))), SPEC)
    assert [p.name for p in compiled.graph.nodes["layer"].params] == ["W"]


def test_a_tied_table_is_dense_and_one_that_functions_look_up_is_sparse() -> None:
    assert dense_tables(tied_sum().graph) == {
        "embed.E": "it is looked up, and also used as a whole (matmul_t)"
    }
    table = fe.Layer(
        shapes={"E": (V, W)}, plain=lambda p, i: f.take(p.E, i), shifted=lambda p, x, i: f.take(p.E, i) + x
    )

    def model(x: Any) -> None:
        fe.loss(fe.sum_columns(fe.reduce(table.plain(x.words)) * table.shifted(x.x, x.next)))

    compiled = fe.compile(model, SPEC)
    (sparse,) = sparse_parameters(compiled.graph)
    assert sparse.rows([compiled.encode(PLAIN)]).tolist() == [1, 2, 4]


def test_replicas_of_a_node_with_several_functions_compute_the_same() -> None:
    compiled = tied_sum()
    copies = replicate(compiled.graph, "embed", 2, "hash")
    assert sorted(copies.parameterised) == ["embed_0", "embed_1"]


def test_rows_of_an_opened_space_are_summed_and_spread_within_a_function() -> None:
    layer = fe.Layer(shapes={"W": (W, 3)}, a=lambda p, x: _spread(x @ p.W), b=lambda p, h: h @ p.W.T)
    compiled = fe.compile(lambda x: fe.loss(fe.sum_columns(layer.b(layer.a(x.x)))), SPEC)
    w = compiled.parameters()["layer"]["W"].astype(np.float64)
    assert float(compiled.outputs(PLAIN)["loss"]["loss"].sum()) == pytest.approx(
        float((3 * (PLAIN["x"] @ w) @ w.T).sum()), rel=1e-5
    )


def _spread(h: Any) -> Any:
    h.builder.spaces["three"] = Const(3)
    return f.sum_rows(f.spread_rows(h, "three"))


def refused(model: Callable[[Any], Any], match: str) -> None:
    """The model is refused, with the line of this file on which it is written."""
    with pytest.raises(fe.FrontendError, match=rf"test_tied\.py:\d+: {match}"):
        fe.compile(model, SPEC)


def test_parameters_of_another_layer_are_refused_with_what_to_write() -> None:
    embed = fe.Embedding(V, W)
    matrix = fe.parameter((W, W))
    for name in ("E", "table", "weight", "parameters"):
        refused(lambda x, n=name: fe.Linear(V, init=getattr(embed, n)), NO_ATTRIBUTE.format(name))
    own = fe.Layer(lambda p, h: h @ embed.E.T + p.b, {"b": (V,)})
    refused(lambda x: own(x.x), NO_ATTRIBUTE.format("E"))
    refused(lambda x: x.x @ embed.E.T, NO_ATTRIBUTE.format("E"))
    refused(lambda x: fe.Linear(V, init=embed), r"a parameter starts as .* several functions")
    refused(lambda x: fe.Linear(V, weight=embed), r"Linear has no setting 'weight'; .* several functions")
    refused(lambda x: fe.Embedding(V, W, table=embed), r"Embedding has no setting 'table'")
    refused(lambda x: embed(lambda p, h: h @ p.E.T, x.x), r"an embedding takes .*several functions")
    refused(lambda x: fe.Linear(2)(lambda p, h: h, x.x), r"a layer is called with values .*several functions")
    refused(lambda x: fe.Layer(lambda p, h: h @ matrix, {"W": (W, W)})(x.x), r"a value is multiplied with")
    refused(lambda x: fe.Layer(lambda p, h: embed.attend(h), {"W": (W, W)})(x.x), r"a layer is called")


def test_one_parameter_in_two_layers_is_refused() -> None:
    matrix = fe.parameter((W, W))
    first, second = (fe.Layer(lambda p, h: h @ p.W, {"W": matrix}) for _ in range(2))
    refused(
        lambda x: fe.loss(fe.sum_columns(second(first(x.x)))),
        r"one `parameter\(...\)` is given to 'first' as W and to 'second' as W, .*one layer with several",
    )


def test_what_a_layer_with_several_functions_is_not_given() -> None:
    def made(**functions: Any) -> Callable[[Any], Any]:
        return lambda x: fe.Layer(shapes={"W": (W, 3), "b": (3,)}, **functions)

    refused(made(weight=3), r"weight=3 is no function")
    refused(made(decode=fe.Linear(3)), r"decode=.* is no function")
    refused(made(apply=lambda p, x: x @ p.W), r"a function of a layer is not called 'apply'")
    refused(lambda x: made(go=lambda p, x: x @ p.W)(x)(x.x), r"this layer is not called itself; .* `go`")
    refused(lambda x: made(go=lambda p, x: x @ p.W)(x).go(), r"Layer.go is called with 0 operands")
    refused(lambda x: made(go=lambda p, x: x @ p.b.T)(x).go(x.x), r"parameter 'b' .* is no matrix")
    refused(lambda x: made(go=lambda p, x: x + p.W.T)(x).go(x.x), r"'W.T' is for products")
    refused(
        lambda x: fe.Layer(shapes=lambda w: {"W": (w, w)}, go=lambda p, x: x @ p.W),
        r"the functions of a layer have operands of different widths",
    )
    embed = fe.Embedding(V, W)
    refused(lambda x: embed.attend(fe.concat(x.x, x.x)), r"`attend` multiplies .* of width 8")
    refused(lambda x: embed.attend(x.next), r"`attend` takes a value")


def test_shapes_that_follow_the_operands_do_not_fit_several_functions() -> None:
    class Wide(fe.Layer):
        def shapes(self, *widths: int) -> Any:
            return {"W": (sum(widths), 3)}

        def function(self, p: Any, *operands: Any) -> Any:
            return operands[0] @ p.W

        @fe.layer_function
        def twice(self, p: Any, a: Any, b: Any) -> Any:
            return f.concat(a, b) @ p.W

    wide = Wide()
    refused(
        lambda x: fe.loss(fe.sum_columns(wide(x.x) * wide.twice(x.x, x.x))),
        r"the functions of the layer 'wide' ask for different parameters 'W': \(4, 3\) and \(8, 3\)",
    )


def test_the_largest_of_rows_is_not_taken_in_one_of_several_functions() -> None:
    def largest(h: Any) -> Any:
        h.builder.spaces["three"] = Const(3)
        return f.max_rows(f.spread_rows(h, "three"))

    layer = fe.Layer(shapes={"W": (W, 3)}, a=lambda p, x: largest(x @ p.W), b=lambda p, h: h @ p.W.T)
    refused(
        lambda x: fe.loss(fe.sum_columns(layer.b(layer.a(x.x)))),
        r"the function 'a' of the layer 'layer' takes the largest of rows",
    )
