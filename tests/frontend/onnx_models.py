"""Models of ONNX built by hand, and their gradients by differences in double precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe

onnx = pytest.importorskip("onnx")
reference = pytest.importorskip("onnx.reference")
runtime = pytest.importorskip("onnxruntime")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
FLOAT, INT, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL

MOST = 5
STEPS = fe.Axis("steps", most=MOST)
SPEC = fe.Record(
    x=fe.Along(STEPS, fe.Floats(4)),
    tokens=fe.Along(STEPS, fe.Int(5)),
    v=fe.Floats(4),
    k=fe.Int(3),
    image=fe.Floats(72),
)
TYPES = {
    "x": (FLOAT, ["n", 4]),
    "tokens": (INT, ["n"]),
    "v": (FLOAT, [1, 4]),
    "k": (INT, []),
    "image": (FLOAT, [1, 2, 6, 6]),
}


class Graph:
    """A graph in the making; parameters are drawn from `seed`."""

    def __init__(self, seed: int = 0) -> None:
        self._rng, self.initializers, self.nodes = np.random.default_rng(seed), list[Any](), list[Any]()

    def parameter(self, name: str, *shape: int) -> str:
        values = (self._rng.normal(size=shape) * 0.5).astype(np.float32)
        self.initializers.append(numpy_helper.from_array(values, name))
        return name

    def constant(self, name: str, value: Any) -> str:
        self.nodes.append(
            helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value), name))
        )
        return name

    def __call__(self, operator: str, inputs: Sequence[str], outputs: str, **attributes: Any) -> str:
        """A node; outputs: their names, with spaces between them."""
        names = outputs.split()
        self.nodes.append(helper.make_node(operator, inputs, names, name=f"the {names[0]}", **attributes))
        return names[0]

    def body(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        """As the graph of a loop or of a branch; by name the type and the shape."""
        return helper.make_graph(self.nodes, "body", _infos(inputs), _infos(outputs), self.initializers)

    def model(self, inputs: Sequence[str], outputs: dict[str, Any], opset: int = 20) -> Any:
        """inputs: names of `TYPES`; outputs: by name the shape."""
        given = {name: TYPES[name] for name in inputs}
        made = {name: (FLOAT, shape) for name, shape in outputs.items()}
        graph = helper.make_graph(self.nodes, "model", _infos(given), _infos(made), self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        onnx.checker.check_model(model, full_check=True)
        return model


def _infos(values: dict[str, Any]) -> list[Any]:
    return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in values.items()]


def instance(length: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng((seed, length))
    return {
        "x": rng.normal(size=(length, 4)).astype(np.float32).astype(float),
        "tokens": rng.integers(0, 5, length),
        "v": rng.normal(size=4).astype(np.float32).astype(float),
        "k": int(rng.integers(0, 3)),
        "image": rng.normal(size=72).astype(np.float32).astype(float),
    }


def feeds(model: Any, plain: dict[str, Any]) -> dict[str, np.ndarray]:
    """An instance as the model's inputs."""
    found = {}
    for i in model.graph.input:
        kind, shape = TYPES[i.name]
        value = np.asarray(plain[i.name], np.int64 if kind == INT else np.float32)
        found[i.name] = value.reshape([-1 if d == "n" else d for d in shape])
    return found


class LayerNormalization(reference.op_run.OpRun):  # type: ignore[misc, name-defined]
    """The evaluator's own rounds to single precision."""

    op_domain = ""

    def _run(
        self, x: Any, scale: Any, bias: Any = None, axis: int = -1, epsilon: float = 1e-5, **_: Any
    ) -> Any:
        axes = tuple(range(axis % x.ndim, x.ndim))
        centred = x - x.mean(axes, keepdims=True)
        y = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon) * scale
        return (y if bias is None else y + bias,)


class Doubled:
    """A model in double precision, with parameters that may be moved."""

    def __init__(self, model: Any) -> None:
        self._model = onnx.ModelProto()
        self._model.CopyFrom(model)
        self.parameters: dict[str, np.ndarray] = {}
        self._tensors = dict(self._widened(self._model.graph))
        self._turned = any(a.name == "scan_input_directions" for n in model.graph.node for a in n.attribute)

    def _widened(self, graph: Any) -> Iterator[tuple[str, Any]]:
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type == FLOAT:
                value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
        for tensor in graph.initializer:
            if tensor.data_type == FLOAT:
                self.parameters[tensor.name] = numpy_helper.to_array(tensor).astype(np.float64)
                tensor.CopyFrom(numpy_helper.from_array(self.parameters[tensor.name], tensor.name))
                yield tensor.name, tensor
        for node in graph.node:
            for a in node.attribute:
                if a.type == onnx.AttributeProto.TENSOR and a.t.data_type == FLOAT:
                    a.t.CopyFrom(
                        numpy_helper.from_array(numpy_helper.to_array(a.t).astype(np.float64), a.t.name)
                    )
                if a.type == onnx.AttributeProto.GRAPH:
                    yield from self._widened(a.g)
                if node.op_type == "Cast" and a.name == "to" and a.i == FLOAT:
                    a.i = onnx.TensorProto.DOUBLE

    def loss(self, given: dict[str, np.ndarray]) -> float:
        """The sum of squares of all results."""
        wide = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in given.items()}
        if self._turned:  # which the evaluator does not know
            runner = runtime.InferenceSession(
                self._model.SerializeToString(), providers=["CPUExecutionProvider"]
            )
        else:
            runner = reference.ReferenceEvaluator(self._model, new_ops=[LayerNormalization])
        return sum(float((np.asarray(y, np.float64) ** 2).sum()) for y in runner.run(None, wide))

    def gradient(self, name: str, given: dict[str, np.ndarray]) -> np.ndarray:
        """By central differences."""
        values, tensor = self.parameters[name], self._tensors[name]
        found = np.zeros_like(values)
        for at in np.ndindex(values.shape):
            losses = []
            for step in (1e-5, -1e-5):
                moved = values.copy()
                moved[at] += step
                tensor.CopyFrom(numpy_helper.from_array(moved, name))
                losses.append(self.loss(given))
            found[at] = (losses[0] - losses[1]) / 2e-5
        tensor.CopyFrom(numpy_helper.from_array(values, name))
        return found


def compiled(net: Any, names: Sequence[str]) -> fe.Compiled:
    """A model with a loss for each result: the sum of its squares. It reports the result."""

    def model(x: Any) -> None:
        made = net(*(getattr(x, name) for name in names))
        for i, y in enumerate(made if isinstance(made, list) else [made]):
            fe.loss(fe.sum_columns(y * y), name=f"loss{i}", y=y)

    return fe.compile(model, SPEC)


def assert_computes(made: fe.Compiled, model: Any, plain: dict[str, Any]) -> None:
    """Each result is onnxruntime's, with a row for each position."""
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = made.outputs(plain)
    theirs = session.run(None, feeds(model, plain))
    for i, (told, expected) in enumerate(zip(model.graph.output, theirs, strict=True)):
        names = [d.dim_param for d in told.type.tensor_type.shape.dim]
        rows = np.moveaxis(expected, names.index("n"), 0) if "n" in names else expected[None]
        ours = found[f"loss{i}"]["y"]
        np.testing.assert_allclose(ours, rows.reshape(len(ours), -1), rtol=1e-4, atol=1e-5, err_msg=told.name)
