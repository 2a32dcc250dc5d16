"""`from_onnx`: a model of ONNX, with its loops and decisions, as a layer that starts with its weights.

The graph is read into a `Flow`, which is computed as a program of PyTorch is. Here are names, shapes and
constants; what an operator means is in `onnx_ops.py`, those with bodies are in `onnx_loops.py`. The library
`onnx` reads a file, checks it and deduces shapes; it is imported by `from_onnx` alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

import numpy as np

from amphw.frontend.flow import Flow, Shape, Step, taken_apart
from amphw.frontend.flow_blocks import weight_of
from amphw.frontend.flow_program import ImportedProgram
from amphw.frontend.onnx_ops import OPERATORS
from amphw.frontend.source import FrontendError
from amphw.frontend.torch_ops import Weight

_OLDEST = 13
"""Since then a softmax is along one axis, and axes of reductions are operands."""


def from_onnx(
    model: Any, *, outputs: Sequence[str] | None = None, most: int | None = None
) -> ImportedProgram:
    """A model of ONNX, or the path of its file, to be called in a model's function with its inputs.

    A dimension that has a name in the graph is the positions that an operand depends on, or a batch of one
    where it depends on none; those that are numbers are the columns of a value. Initializers of floats are
    parameters and are trained; a `Constant` is not. outputs: names of the results, which may lie within the
    graph; what they do not need is not read. most: a bound for a `Loop` that says none. The result is a
    value, or a list where there are several.

    Raises FrontendError naming the operator and the node for what has no counterpart here, for a file that is
    no valid model, and without the package `onnx`.
    """
    try:
        import onnx
        import onnx.reference
    except ImportError:
        raise FrontendError("from_onnx needs the package onnx: pip install 'amphw[onnx]'") from None
    if isinstance(model, str | PathLike):
        path = fspath(model)
        try:
            model = onnx.load(path)
        except (OSError, ValueError) as error:
            raise FrontendError(f"{path}: {error}") from error
        except Exception as error:  # what protobuf raises has a class of its own in each implementation
            raise FrontendError(f"{path} is no file of ONNX: {error}") from error
    if not isinstance(model, onnx.ModelProto):
        raise FrontendError(f"from_onnx takes an onnx.ModelProto or a path, got {type(model).__name__}")
    try:
        onnx.checker.check_model(model)
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise FrontendError(f"the model is not valid: {str(error).strip().splitlines()[0]}") from error
    version = max((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), default=0)
    if version < _OLDEST:
        raise FrontendError(
            f"the model is of version {version} of ONNX's operators, some of which have changed; they are "
            f"known from {_OLDEST} on, and onnx.version_converter makes a model of that"
        )
    flow = _Reader(onnx, model).read(outputs)
    return _Imported(flow, {}, most)


class _Imported(ImportedProgram):
    """A model of ONNX as a part of a model."""

    differs = "give the dimension a name in the inputs of the graph, so that it may be {small} to {large}"


@dataclass
class _Scope:
    """What names mean in a graph; what is not found is looked for in the graph around it."""

    found: dict[str, Any]
    types: dict[str, tuple[str, Shape | None, bool]]
    around: _Scope | None = None
    steps: list[Step] = field(default_factory=list)

    def __contains__(self, name: str) -> bool:
        return name in self.found or (self.around is not None and name in self.around)

    def __getitem__(self, name: str) -> Any:
        if name in self.found:
            return self.found[name]
        if self.around is None:  # the checker has looked that somebody makes it
            raise FrontendError(f"'{name}', a further result of its node, has no counterpart here")
        return self.around[name]


class _Reader:
    """Reads the graphs of a model."""

    def __init__(self, onnx: Any, model: Any) -> None:
        self._onnx, self._model = onnx, model
        self._weights: dict[str, Step] = {}
        self._lengths: dict[str, tuple[Step, int]] = {}

    def read(self, outputs: Sequence[str] | None = None) -> Flow:
        """The graph, or what these of its values need."""
        graph = self._model.graph
        return self.flow(graph if outputs is None else _part(graph, outputs), None)

    def flow(self, graph: Any, around: _Scope | None, counted: bool = False) -> Flow:
        """counted: whether the first two inputs are computed, the turn of a loop and whether it goes on."""
        scope = _Scope({}, self.types(graph), around)
        for tensor in graph.initializer:
            scope.found[tensor.name] = self.initial(tensor)
        given = [i.name for i in graph.input if i.name not in scope.found]
        for name in given:
            kind, shape, truth = scope.types[name]
            kind = "float" if counted and name in given[:2] else kind
            scope.found[name] = self.new(
                scope, name, "input", (), {}, shape, kind, f"the input '{name}'", truth
            )
            self._known(scope.found[name])
        inputs = [scope.found[name] for name in given]
        for node in graph.node:
            self.node(node, scope)
        outputs = [self.step(scope, scope[o.name], o.name) for o in graph.output]
        return Flow(inputs, [s for s in scope.steps if s.op not in ("input", "weight", "number")], outputs)

    def types(self, graph: Any) -> dict[str, tuple[str, Shape | None, bool]]:
        """Kind, shape and whether it is a truth by name, as far as they have been deduced."""
        found: dict[str, tuple[str, Shape | None, bool]] = {}
        for value in (*graph.input, *graph.value_info, *graph.output):
            if not value.type.HasField("tensor_type"):
                raise FrontendError(
                    f"'{value.name}' is no tensor; sequences, maps and optional values are not known"
                )
            tensor = value.type.tensor_type
            dims = [
                d.dim_param or (d.dim_value if d.HasField("dim_value") else None) for d in tensor.shape.dim
            ]
            shape = tuple(dims) if tensor.HasField("shape") and None not in dims else None
            kind = "float" if self.floating(tensor.elem_type) else "int"
            truth = tensor.elem_type == self._onnx.TensorProto.BOOL
            found[value.name] = kind, shape, truth  # type: ignore[assignment]
        return found

    def floating(self, element: int) -> bool:
        return bool(np.issubdtype(self._onnx.helper.tensor_dtype_to_np_dtype(element), np.floating))

    def initial(self, tensor: Any) -> Any:
        """A parameter; of integers, and of a single number, a constant."""
        values = self._onnx.numpy_helper.to_array(tensor)
        if not np.issubdtype(values.dtype, np.floating) or values.ndim == 0:
            return values
        return self.parameter(tensor.name, values)

    # --- steps --------------------------------------------------------------------------------------

    def parameter(self, name: str, values: np.ndarray) -> Step:
        """A parameter that is trained."""
        if not np.isfinite(values).all():
            raise FrontendError(f"the initializer '{name}' has numbers that are not finite")
        own, count = plain(name), 1
        while (unique := own if count == 1 else f"{own}_{count}") in self._weights:
            count += 1  # another branch may have one of this name, too
        place = re.sub("[/:]+", ".", name).strip(".")
        held = Weight(unique, np.asarray(values, np.float32), place=place)
        self._weights[unique] = Step(
            unique, "weight", (held,), {}, held.values.shape, "float", None, f"'{name}'"
        )
        return self._weights[unique]

    def new(
        self,
        scope: _Scope,
        name: str,
        op: str,
        args: Any,
        kwargs: Any,
        shape: Any,
        kind: str,
        shown: str,
        truth: bool = False,
    ) -> Step:
        step = Step(name, op, tuple(args), dict(kwargs), shape, kind, None, shown, truth)
        scope.steps.extend(taken_apart(step))
        return step

    def _known(self, step: Step) -> None:
        """Note where lengths are told."""
        for k, d in enumerate(step.shape or ()):
            if isinstance(d, str):
                self._lengths.setdefault(d, (step, k))

    def step(self, scope: _Scope, value: Any, name: str) -> Step:
        """A constant as a step, too."""
        if isinstance(value, Step):
            return value
        constant = np.asarray(value)
        if constant.dtype == object:  # a length
            if constant.size != 1:
                raise FrontendError(f"'{name}' is a list of lengths, which is computed with here")
            source, k = self._lengths[str(constant.item())]
            return self.new(
                scope, name, "sym_size", (source, k), {}, (), "int", f"the length of '{source.name}'"
            )
        if constant.size == 0 or (constant != constant.flat[0]).any():
            raise FrontendError(
                f"'{name}' is a constant of different numbers; as an initializer of the graph it is trained"
            )
        number = constant.flat[0].item()
        number = int(number) if isinstance(number, bool) else number
        kind = "float" if np.issubdtype(constant.dtype, np.floating) else "int"
        return self.new(scope, name, "number", (number,), {}, constant.shape, kind, f"'{name}'")

    # --- nodes --------------------------------------------------------------------------------------

    def node(self, node: Any, scope: _Scope) -> None:
        """Read a node; what it makes gets its names."""
        if node.domain not in ("", "ai.onnx"):
            raise FrontendError(f"{_shown(node)}: operators of '{node.domain}' have no counterpart here")
        given = [scope[name] if name else None for name in node.input]
        attributes = {a.name: self._onnx.helper.get_attribute_value(a) for a in node.attribute}
        operator = OPERATORS.get(node.op_type)
        if node.op_type in ("Constant", "ConstantOfShape") or (
            given
            and all(isinstance(x, np.ndarray) and x.dtype != object or x is None for x in given)
            and node.op_type not in ("If", "Loop", "Scan")
        ):
            made: Any = self._folded(node, given)
        elif operator is None:
            raise FrontendError(f"{_shown(node)} has no counterpart here")
        else:
            made = operator(Node(self, scope, node, given, attributes))
        results = made if isinstance(made, list) else [made]
        for name, result in zip(node.output, results, strict=False):
            if name:
                scope.found[name] = result
                if isinstance(result, Step):
                    self._known(result)

    def _folded(self, node: Any, given: Sequence[Any]) -> list[Any]:
        """What a node makes of constants."""
        if any(isinstance(x, np.ndarray) and x.dtype == object for x in given):
            raise FrontendError(f"{_shown(node)}: a constant for each position of a length that differs")
        make, proto = self._onnx.helper, self._onnx.ValueInfoProto
        feeds = {n: x for n, x in zip(node.input, given, strict=True) if n}
        try:
            alone = make.make_graph(
                [node], "alone", [proto(name=n) for n in feeds], [proto(name=n) for n in node.output]
            )
            model = make.make_model(alone, opset_imports=self._model.opset_import)
            return list(self._onnx.reference.ReferenceEvaluator(model).run(None, feeds))
        except Exception as error:  # whatever an operator does with what it is given
            raise FrontendError(f"{_shown(node)}: {error}") from error


class Node:
    """A node that is being read: what an operator of `onnx_ops.py` is given."""

    def __init__(self, reader: _Reader, scope: _Scope, node: Any, given: list[Any], attributes: Any) -> None:
        self._reader, self._scope, self._node = reader, scope, node
        self.given, self.attributes = given, attributes

    @property
    def outputs(self) -> int:
        return len(self._node.output)

    def attribute(self, name: str, default: Any = None) -> Any:
        found = self.attributes.get(name, default)
        return found.decode() if isinstance(found, bytes) else found

    def error(self, message: str) -> FrontendError:
        return FrontendError(f"{_shown(self._node)}: {message}")

    def has(self, k: int) -> bool:
        return k < len(self.given) and self.given[k] is not None

    def step(self, k: int) -> Step:
        """The operand, as a step."""
        if not self.has(k):
            raise self.error(f"operand {k} is missing")
        return self._reader.step(self._scope, self.given[k], self._node.input[k])

    def constant(self, k: int, name: str = "", default: Any = None) -> Any:
        """The operand as what it is everywhere, or the attribute that it was in older versions."""
        if not self.has(k):
            found = self.attributes.get(name, default)
            return list(found) if isinstance(found, tuple) else found
        value = self.given[k]
        if isinstance(value, Step) or np.asarray(value).dtype == object:
            raise self.error(f"operand {k}, '{self._node.input[k]}', must be constant")
        return np.asarray(value).tolist()

    def parameter(self, name: str, values: np.ndarray) -> Step:
        return self._reader.parameter(name, values)

    def emit(
        self, op: str, *args: Any, shape: Any = None, kind: str | None = None, out: int = 0, **kwargs: Any
    ) -> Step:
        """Another step, which by itself has the shape of the output `out`."""
        name = self._node.output[out] if out < len(self._node.output) else ""
        if shape is None:
            shape = self._scope.types.get(name, ("", None, False))[1]
            if shape is None:
                raise self.error(
                    f"the shape of '{name}' cannot be deduced; every dimension needs a number or a name"
                )
        if kind is None:
            read = [x for x in _flat(args) if x.op != "number"]
            kind = "int" if read and all(x.kind == "int" for x in read) else "float"
        truth = self._scope.types.get(name, ("", None, False))[2]
        return self._reader.new(self._scope, name, op, args, kwargs, shape, kind, self.shown, truth)

    @property
    def kind(self) -> str:
        return str(self._node.op_type)

    @property
    def shown(self) -> str:
        return _shown(self._node)

    @property
    def label(self) -> str:
        """A name for what belongs to the node."""
        return plain(self._node.name or self._node.output[0] or self._node.output[-1])

    def value(self, k: int) -> Step:
        """The operand as a value, also where it is a parameter."""
        x = self.step(k)
        if weight_of(x) is None:
            return x
        return self._reader.new(
            self._scope, f"{x.name}_value", "parameter", (x,), {}, x.shape, "float", self.shown
        )

    def initializer(self, k: int) -> np.ndarray:
        """The values of an operand that is an initializer, for parameters that are made of it."""
        x = self.step(k)
        if x.op != "weight":
            raise self.error(f"operand {k}, '{self._node.input[k]}', must be an initializer of the graph")
        values: np.ndarray = x.args[0].values
        return values

    def number(self, value: float) -> Step:
        return Step(f"number_{value}", "number", (value,), {}, ())

    def length(self, k: int) -> str:
        """The length that an operand is."""
        value = self.given[k]
        if isinstance(value, Step) or np.asarray(value).dtype != object or np.asarray(value).size != 1:
            raise self.error(
                f"operand {k}, '{self._node.input[k]}', must be the length of an input or a constant"
            )
        return str(np.asarray(value).item())

    def whole(self) -> bool:
        """Whether it makes whole numbers by its type."""
        name = self._node.output[0]
        return self._scope.types.get(name, ("float", None, False))[0] == "int"

    def floats(self, element: int) -> bool:
        return self._reader.floating(element)

    def flow(self, graph: Any, counted: bool = False) -> Flow:
        """The body of a loop or of a branch. counted: see `_Reader.flow`."""
        return self._reader.flow(graph, self._scope, counted)

    def inline(self, graph: Any) -> list[Any]:
        """The results of a graph without inputs that is computed in any case."""
        inside = _Scope({}, self._reader.types(graph), self._scope, self._scope.steps)
        for tensor in graph.initializer:
            inside.found[tensor.name] = self._reader.initial(tensor)
        for node in graph.node:
            self._reader.node(node, inside)
        return [inside[o.name] for o in graph.output]


def _part(graph: Any, outputs: Sequence[str]) -> Any:
    """A graph with these results, and the nodes that they need."""
    makes = {name: node for node in graph.node for name in node.output if name}
    infos = {v.name: v for v in (*graph.value_info, *graph.output)}
    unknown = [name for name in outputs if name not in makes or name not in infos]
    if unknown or not outputs:
        known = ", ".join(o.name for o in graph.output)
        raise FrontendError(f"no node makes {unknown or 'nothing'}; the outputs of the graph are {known}")
    needed, waiting = set[int](), list(outputs)
    while waiting:
        if (node := makes.get(waiting.pop())) is not None and id(node) not in needed:
            needed.add(id(node))
            waiting.extend(_read_by(node))
    kept = [node for node in graph.node if id(node) in needed]
    read = {name for node in kept for name in _read_by(node)}
    part = type(graph)(name=graph.name, initializer=graph.initializer, value_info=graph.value_info)
    part.node.extend(kept)
    part.input.extend(i for i in graph.input if i.name in read)
    part.output.extend(infos[name] for name in outputs)
    return part


def _read_by(node: Any) -> list[str]:
    """Names that a node reads, those within its bodies among them."""
    bodies = [a.g for a in node.attribute if a.HasField("g")]
    inner = [name for g in bodies for each in g.node for name in _read_by(each)]
    return [*node.input, *inner, *(o.name for g in bodies for o in g.output)]


def plain(name: str) -> str:
    """A name as parameters and nodes may have it."""
    return re.sub(r"\W+", "_", name).strip("_") or "unnamed"


def _flat(value: Any) -> list[Step]:
    if isinstance(value, Step):
        return [value]
    return [x for part in value for x in _flat(part)] if isinstance(value, tuple | list) else []


def _shown(node: Any) -> str:
    return f"{node.op_type} '{node.name or (node.output[0] if node.output else '')}'"
