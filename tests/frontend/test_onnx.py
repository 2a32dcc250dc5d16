"""Models of ONNX with loops and decisions: results are onnxruntime's, gradients those of differences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amphw
from amphw import frontend as fe
from tests.frontend.onnx_models import (
    BOOL,
    FLOAT,
    INT,
    MOST,
    Doubled,
    Graph,
    assert_computes,
    compiled,
    feeds,
    instance,
    onnx,
)

LAST = 2**63 - 1


def scanned() -> Any:
    g, b = Graph(), Graph()
    b("MatMul", ["x", "W"], "a")
    b("MatMul", ["h", "U"], "b")
    b("Sum", ["a", "b", "bias"], "c")
    b("Tanh", ["c"], "after")
    b("Identity", ["after"], "y")
    body = b.body(
        {"h": (FLOAT, [1, 4]), "x": (FLOAT, [1, 3])}, {"after": (FLOAT, [1, 4]), "y": (FLOAT, [1, 4])}
    )
    for name, shape in (
        ("E", (5, 3)),
        ("h0", (1, 4)),
        ("W", (3, 4)),
        ("U", (4, 4)),
        ("bias", (4,)),
        ("V", (2, 4)),
        ("d", (2,)),
    ):
        g.parameter(name, *shape)
    g("Gather", ["E", "tokens"], "e")
    g("Unsqueeze", ["e", g.constant("one", [1])], "rows")
    g("Scan", ["h0", "rows"], "h ys", num_scan_inputs=1, body=body)
    g("Gemm", ["h", "V", "d"], "out", transB=1, alpha=0.5)
    return g.model(["tokens"], {"out": [1, 2], "ys": ["n", 1, 4]})


def sine() -> Any:
    g = Graph()
    g("Sin", ["v"], "y")
    return g.model(["v"], {"y": [1, 4]})


def from_the_end() -> Any:
    """Along the second dimension, backwards, with what is collected turned around again."""
    g, b = Graph(1), Graph()
    b("Add", ["h", "x"], "a")
    b("MatMul", ["a", "U"], "c")
    b("Sigmoid", ["c"], "after")
    b("Mul", ["after", "x"], "y")
    body = b.body({"h": (FLOAT, [4]), "x": (FLOAT, [4])}, {"after": (FLOAT, [4]), "y": (FLOAT, [4])})
    g.parameter("U", 4, 4)
    g.parameter("h0", 4)
    g("Transpose", ["x"], "turned", perm=[1, 0])
    g(
        "Scan", ["h0", "turned"], "h ys", num_scan_inputs=1, body=body, scan_input_axes=[1],
        scan_input_directions=[1], scan_output_directions=[1], scan_output_axes=[1],
    )  # fmt: skip
    return g.model(["x"], {"h": [4], "ys": [4, "n"]})


def chosen() -> Any:
    """By what the network has computed."""
    g, then, other = Graph(2), Graph(), Graph()
    then("MatMul", ["s", "A"], "r")
    other("MatMul", ["s", "C"], "r1")
    other("Add", ["r1", "bias"], "r2")
    other("Tanh", ["r2"], "r3")
    for name, shape in (("A", (4, 4)), ("C", (4, 4)), ("bias", (4,))):
        g.parameter(name, *shape)
    g("ReduceSum", ["x", g.constant("first", [0])], "s")
    g("ReduceMean", ["s"], "mean", keepdims=0)
    g("Greater", ["mean", g.constant("zero", np.float32(0))], "condition")
    branches = {
        "then_branch": then.body({}, {"r": (FLOAT, [1, 4])}),
        "else_branch": other.body({}, {"r3": (FLOAT, [1, 4])}),
    }
    g("If", ["condition"], "out", **branches)
    return g.model(["x"], {"out": [1, 4]})


def chosen_by_the_instance() -> Any:
    g, then, other = Graph(3), Graph(), Graph()
    then("MatMul", ["v", then.parameter("A", 4, 4)], "r")
    other("Mul", ["v", other.parameter("B", 4)], "r")
    g("Equal", ["k", g.constant("one", 1)], "condition")
    branches = {
        name: b.body({}, {"r": (FLOAT, [1, 4])})
        for name, b in (("then_branch", then), ("else_branch", other))
    }
    g("If", ["condition"], "out", **branches)
    return g.model(["v", "k"], {"out": [1, 4]})


def until_it_is_small() -> Any:
    g, b = Graph(4), Graph()
    b("MatMul", ["v", "A"], "a")
    b("Tanh", ["a"], "after")
    b("ReduceSum", ["after"], "total", keepdims=0)
    b("Abs", ["total"], "size")
    b("Greater", ["size", b.constant("small", np.float32(0.3))], "on")
    body = b.body(
        {"i": (INT, []), "goes": (BOOL, []), "v": (FLOAT, [1, 4])},
        {"on": (BOOL, []), "after": (FLOAT, [1, 4])},
    )
    g.parameter("A", 4, 4)
    g("ReduceSum", ["x", g.constant("first", [0])], "s")
    g("Loop", [g.constant("most", 4), g.constant("true", True), "s"], "out", body=body)
    return g.model(["x"], {"out": [1, 4]})


def each_position() -> Any:
    """A loop with as many turns as there are positions, which gathers by its turn."""
    g, b = Graph(5), Graph()
    b("Gather", ["e", "i"], "item")
    b("MatMul", ["h", "A"], "a")
    b("Add", ["a", "item"], "c")
    b("Tanh", ["c"], "after")
    b("Identity", ["goes"], "on")
    b("Identity", ["after"], "y")
    state = (FLOAT, [1, 3])
    body = b.body(
        {"i": (INT, []), "goes": (BOOL, []), "h": state}, {"on": (BOOL, []), "after": state, "y": state}
    )
    for name, shape in (("E", (5, 3)), ("A", (3, 3)), ("h0", (1, 3))):
        g.parameter(name, *shape)
    g("Gather", ["E", "tokens"], "e")
    g("Shape", ["tokens"], "shape")
    g("Gather", ["shape", g.constant("zero", 0)], "count")
    g("Loop", ["count", g.constant("true", True), "h0"], "out ys", body=body)
    return g.model(["tokens"], {"out": [1, 3], "ys": ["n", 1, 3]})


def pooled() -> Any:
    """Rows, columns, and reductions over positions."""
    g = Graph(6)
    for name, shape in (
        ("A", (4, 6)),
        ("scale", (6,)),
        ("shift", (6,)),
        ("q", (6, 1)),
        ("G", (12, 3)),
        ("c", (3,)),
        ("sign", (1,)),
    ):
        g.parameter(name, *shape)
    g("MatMul", ["x", "A"], "a")
    g("LayerNormalization", ["a", "scale", "shift"], "normed", axis=-1)
    g("Gelu", ["normed"], "curved", approximate="tanh")
    g("MatMul", ["curved", "q"], "scores")
    g("Softmax", ["scores"], "weights", axis=0)
    g("Mul", ["weights", "curved"], "weighted")
    g("ReduceSum", ["weighted", g.constant("first", [0])], "pool")
    g("Slice", ["curved", g.constant("from", [-1]), g.constant("to", [LAST]), "first"], "last")
    g("Concat", ["pool", "last"], "both", axis=1)
    g("Gemm", ["both", "G", "c"], "mixed")
    g("Split", ["mixed", g.constant("sizes", [1, 2])], "one two", axis=1)
    g("LeakyRelu", ["two"], "leaky", alpha=0.2)
    g("Clip", ["leaky", g.constant("least", np.float32(-0.5)), ""], "cut")
    g("Pow", ["one", g.constant("power", np.float32(2))], "square")
    g("Where", [g("Less", ["cut", "sign"], "below"), "cut", "sign"], "least_of_both")
    g("Reshape", ["least_of_both", g.constant("as", [2])], "flat")
    return g.model(["x"], {"square": [1, 1], "flat": [2]})


def images() -> Any:
    g = Graph(8)
    for name, shape in (("K", (3, 2, 3, 3)), ("c", (3,)), ("G", (12, 2))):
        g.parameter(name, *shape)
    g("Conv", ["image", "K", "c"], "seen", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
    g("Relu", ["seen"], "lit")
    g("MaxPool", ["lit"], "large", kernel_shape=[2, 2], strides=[2, 2])
    g("AveragePool", ["large"], "mean", kernel_shape=[2, 2], strides=[1, 1])
    g("Flatten", ["mean"], "flat")
    g("MatMul", ["flat", "G"], "out")
    return g.model(["image"], {"out": [1, 2]})


def truths() -> Any:
    """Of an integer what holds of it, and a choice."""
    g = Graph(9)
    for name, shape in (("E", (5, 4)), ("one_row", (1, 4)), ("c", (4,))):
        g.parameter(name, *shape)
    g("Cast", ["tokens"], "some", to=BOOL)
    g("Not", ["some"], "none")
    g("Cast", ["none"], "none_as_number", to=FLOAT)
    g("Unsqueeze", ["none_as_number", g.constant("last", [1])], "column")
    g("Gather", ["E", "tokens"], "e")
    g("Log", [g("Abs", ["x"], "sizes")], "logs")
    g("Where", [g("Greater", ["x", g.constant("low", np.float32(0))], "above"), "logs", "e"], "chosen")
    g("Max", ["chosen", "c", "e"], "most")
    g("Min", ["most", "x"], "least")
    g("Sum", ["least", "column", "c"], "y")
    g("Gemm", ["x", "one_row"], "z", transB=1)
    return g.model(["tokens", "x"], {"y": ["n", 4], "z": ["n", 1]})


CASES: dict[str, Callable[[], Any]] = {
    "scan": scanned,
    "scan-from-the-end": from_the_end,
    "if": chosen,
    "if-of-the-instance": chosen_by_the_instance,
    "loop-until": until_it_is_small,
    "loop-over-positions": each_position,
    "rows-and-positions": pooled,
    "images": images,
    "truths": truths,
}


def loss(made: fe.Compiled, plain: dict[str, Any]) -> float:
    return sum(float(part["loss"].sum()) for part in made.outputs(plain).values())


@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients(case: str, tmp_path: Path) -> None:
    model = CASES[case]()
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    made = compiled(fe.from_onnx(path), [i.name for i in model.graph.input])
    doubled = Doubled(model)
    read = set[str]()
    for length in (1, 2, MOST):
        plain = instance(length)
        given = feeds(model, plain)
        assert loss(made, plain) == pytest.approx(doubled.loss(given), rel=1e-5)
        assert_computes(made, model, plain)
        for parameters in made.gradients(plain).values():
            for name, found in parameters.items():
                expected = doubled.gradient(name, given)
                if expected.ndim == 4:  # kernels, which are stored as a matrix [window, kernels]
                    expected = expected.transpose(2, 3, 1, 0).reshape(found.shape)
                same = found if found.shape == expected.shape else found.T.reshape(expected.shape)
                np.testing.assert_allclose(same, expected, rtol=1e-6, atol=1e-6, err_msg=f"{name}, {length}")
                read.add(name)
    assert read == doubled.parameters.keys(), "each parameter has had a gradient"


def recurrent(kind: str, direction: str, biased: bool = True, **more: Any) -> tuple[Any, Any]:
    """A model with a recurrent layer, and one in PyTorch's order of gates."""
    g, ways = Graph(7), 2 if direction == "bidirectional" else 1
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    inputs = ["rows", g.parameter("W", ways, 3 * gates, 4), g.parameter("R", ways, 3 * gates, 3)]
    if biased:
        inputs.append(g.parameter("B", ways, 6 * gates))
    g("Unsqueeze", ["x", g.constant("one", [1])], "rows")
    if kind == "GRU":
        more.setdefault("linear_before_reset", 1)
    g(kind, inputs, "Y Yh Yc" if kind == "LSTM" else "Y Yh", hidden_size=3, direction=direction, **more)
    return g.model(["x"], {"Y": ["n", ways, 1, 3], "Yh": [ways, 1, 3]})


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("biased", [True, False])
def test_recurrent_layers(kind: str, direction: str, biased: bool) -> None:
    """Their parameters are in PyTorch's order, one set for each direction."""
    model = recurrent(kind, direction, biased)
    made = compiled(fe.from_onnx(model), ["x"])
    for length in range(1, MOST + 1):
        plain = instance(length)
        assert_computes(made, model, plain)
    parts = [n for n in ("_W", "_R", "_Wb", "_Rb") if biased or "b" not in n]
    ways = {"forward": [""], "reverse": ["_reverse"], "bidirectional": ["", "_reverse"]}[direction]
    names = {name for parameters in made.gradients(plain).values() for name in parameters}
    assert names == {f"the_Y{part}{way}" for part in parts for way in ways}


def test_gradients_of_a_recurrent_layer() -> None:
    """By moving a parameter a little, in what onnxruntime makes in double precision."""
    model = recurrent("LSTM", "bidirectional")
    made = compiled(fe.from_onnx(model), ["x"])
    plain = instance(3)
    doubled = Doubled(model)
    order = np.concatenate([np.arange(3) + 3 * "iofc".index(gate) for gate in "ifco"])
    found = {name: g for parameters in made.gradients(plain).values() for name, g in parameters.items()}
    expected = doubled.gradient("W", feeds(model, plain))
    for d, way in enumerate(("", "_reverse")):
        np.testing.assert_allclose(found[f"the_Y_W{way}"].T, expected[d][order], rtol=1e-5, atol=1e-6)


def edited(change: Callable[[Any], None], case: str = "scan") -> Any:
    model = CASES[case]()
    change(model)
    return model


def fixed(model: Any) -> None:
    dim = model.graph.input[0].type.tensor_type.shape.dim[0]
    dim.Clear()
    dim.dim_value = 3


def endless(model: Any) -> None:
    loop = next(n for n in model.graph.node if n.op_type == "Loop")
    loop.input[0] = ""


def old() -> Any:
    model = sine()
    model.opset_import[0].version = 11
    return model


def remainder() -> Any:
    g = Graph()
    g("Mod", ["v", g.constant("two", np.float32(2))], "y", fmod=1)
    return g.model(["v"], {"y": [1, 4]})


def at_once() -> Any:
    """Without the lengths of sequences, which are given here."""
    model = recurrent("GRU", "forward")
    node = next(n for n in model.graph.node if n.op_type == "GRU")
    node.input.extend([""] * (4 - len(node.input)) + ["lengths"])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1], np.int32), "lengths"))
    return model


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "operator": (
        sine,
        r"Sin 'the y' has no counterpart",
    ),
    "length": (lambda: edited(fixed), r"Scan 'the h': goes over a length of 3; give the dimension a name"),
    "gates": (lambda: recurrent("GRU", "forward", linear_before_reset=0), "linear_before_reset=1 is known"),
    "activations": (
        lambda: recurrent("RNN", "forward", activations=["Relu"]),
        "activations Relu has no counterpart",
    ),
    "second-direction": (
        lambda: recurrent("RNN", "bidirectional", activations=["Tanh", "Relu"]),
        "activations Tanh, Relu has no counterpart",
    ),
    "lengths": (at_once, "with lengths of its own"),
    "version": (old, "of version 11 of ONNX's operators"),
    "attribute": (remainder, r"Mod 'the y': with fmod=1 has no counterpart"),
    "no-model": (lambda: "x", "no file|No such file"),
    "no-onnx": (lambda: __file__, "is no file of ONNX"),
    "other": (lambda: 3, "takes an onnx.ModelProto or a path, got int"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    make, told = REFUSED[case]
    with pytest.raises(fe.FrontendError, match=told):
        fe.from_onnx(make())


def test_outputs_are_chosen() -> None:
    """Of a graph, what the results need that are named; they may lie within it."""
    model = scanned()
    plain = instance(3)
    made = compiled(fe.from_onnx(model, outputs=["ys"]), ["tokens"])
    assert "V" not in {name for parameters in made.parameters().values() for name in parameters}
    rows = compiled(fe.from_onnx(model, outputs=["e"]), ["tokens"])
    table = onnx.numpy_helper.to_array(model.graph.initializer[0]).astype(float)
    assert loss(rows, plain) == pytest.approx((table[plain["tokens"]] ** 2).sum())
    with pytest.raises(
        fe.FrontendError, match=r"no node makes \['z'\]; the outputs of the graph are out, ys"
    ):
        fe.from_onnx(model, outputs=["z"])
    with pytest.raises(fe.FrontendError, match="no node makes nothing"):
        fe.from_onnx(model, outputs=[])


def test_a_loop_without_a_bound_needs_one() -> None:
    model = edited(endless, "loop-until")
    with pytest.raises(fe.FrontendError, match=r"needs a bound.*most="):
        compiled(fe.from_onnx(model), ["x"])
    made = compiled(fe.from_onnx(model, most=9), ["x"])
    assert_computes(made, model, instance(3))


def test_it_is_trained() -> None:
    """From the initializers on, on the engine."""
    model = scanned()
    net = fe.from_onnx(model)

    def tells(x: Any) -> None:
        fe.classify(net(x.tokens)[0], x.label)

    rng = np.random.default_rng(0)
    data = [
        {"tokens": t, "label": int(t[0] > 2)}
        for t in (rng.integers(0, 5, rng.integers(1, 4)) for _ in range(300))
    ]
    spec = fe.Record(tokens=fe.Sequence(fe.Int(5), most=3), label=fe.Int(2))
    settings = {"epochs": 3, "lr": 0.02, "train.trace": False}
    run = amphw.train(tells, data, spec=spec, **settings)
    assert run.evaluate(data[:50])["accuracy"] > 0.9
