"""`compile`: a model and the specification of its instances -> a graph, and how to encode instances."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from amphw.frontend.encoding import Encoder, encode
from amphw.frontend.explain import explain
from amphw.frontend.finish import finish
from amphw.frontend.index import Dim
from amphw.frontend.layer_names import layer_names, whole_names
from amphw.frontend.source import FrontendError, FrontendNote, SourceLine, origin
from amphw.frontend.spec import Declared, Level, Spec, read
from amphw.frontend.torch_state import TorchState, to_torch
from amphw.frontend.trace import Trace, tracing
from amphw.ir.check import infer
from amphw.ir.device import DeviceOptions
from amphw.ir.errors import GraphError, InstanceError, ProgramError
from amphw.ir.graph import Graph
from amphw.ir.inputs import answers
from amphw.ir.instance import Instance, Schema
from amphw.ir.reference import ReferenceDevice, gradients_of, outputs_of, values_of
from amphw.ir.start import Values, starting_at
from amphw.ir.update import UpdateRule


@dataclass(frozen=True, repr=False)
class Compiled:
    """A model ready to run: `graph` for any device, `encode` for instances, `explain` for people.

    places: node -> the author's line that made it. dims: what the fields of the states are. encoder: what
    writes instances under the names of the graph's schema. imported: of the layers that `from_torch` made, by
    their nodes, the module's tensors.
    """

    graph: Graph
    spec: Spec
    places: dict[str, SourceLine]
    dims: tuple[Dim, ...]
    encoder: Encoder
    imported: dict[str, TorchState] = field(default_factory=dict)

    def __repr__(self) -> str:
        nodes, owners = len(self.graph.nodes), len(self.graph.parameterised)
        return f"Compiled({self.graph.name}: {nodes} nodes, {owners} of them with parameters)"

    def _repr_svg_(self) -> str:
        return self.graph._repr_svg_()

    def _repr_html_(self) -> str:
        return self.graph._repr_html_()

    def _mime_(self) -> tuple[str, str]:
        return self.graph._mime_()

    @cached_property
    def answers(self) -> frozenset[str]:
        """Names, in the graph's schema, of what the model is to predict: losses alone read it."""
        return answers(self.graph)

    def encode(
        self, value: Any, number: int = 0, *, answered: bool = True, dtype: type = np.float32
    ) -> Instance:
        """The instance of plain Python and numpy; InstanceError naming the instance and the part in it.

        answered: whether it has everything; else what losses alone read may be missing. dtype: of its
        numbers; np.float64 is for the reference executor.
        """
        try:
            e = encode(self.encoder, value, None if answered else self.answers, dtype)
        except InstanceError as error:
            raise InstanceError(f"instance {number}: {error}") from None
        return Instance(e.attrs, e.tables, e.data, number, e.answered, e.given)

    def parameters(self, seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
        """Those that training with this seed begins with, by node and name."""
        return values_of(self._opened(None, seed))

    def gradients(
        self, value: Any, parameters: Values | None = None, *, seed: int = 0
    ) -> dict[str, dict[str, np.ndarray]]:
        """By node and name the gradients of one instance's loss, in double precision.

        They are those of the sum of all rows of all losses. value: the instance, plain Python and numpy.
        parameters: by node and name; the others, and all without it, are those that training with `seed`
        begins with. The reference executor computes it, with the masks of dropout of an instance numbered 0.
        Raises InstanceError, and GraphError for parameters that do not fit.
        """
        return gradients_of(self._opened(parameters, seed), self.encode(value, dtype=np.float64))

    def outputs(
        self, value: Any, parameters: Values | None = None, *, seed: int = 0
    ) -> dict[str, dict[str, np.ndarray]]:
        """By loss and name what losses report of one instance [rows, width], without dropout.

        Arguments and errors are those of `gradients`, but what losses alone read may be missing.
        """
        return outputs_of(
            self._opened(parameters, seed), self.encode(value, answered=False, dtype=np.float64)
        )

    def to_torch(self, values: Values) -> dict[str, dict[str, Any]]:
        """Values by node and name, such as parameters or gradients, as PyTorch has them -> for each layer
        that `from_torch` made the `state_dict` of its module. Raises FrontendError where there is none."""
        return to_torch(self.imported, values)

    def to_onnx(self, path: str | PathLike[str] | None = None, parameters: Values | None = None) -> Any:
        """The model as an `onnx.ModelProto`, also written to `path`; see `write_onnx`.

        parameters: by node and name; without them those that training begins with. Raises FrontendError
        naming the first node that is not static, and OSError where the file cannot be written.
        """
        from amphw.frontend.onnx_export import write_onnx

        return write_onnx(self.graph, values_of(self._opened(parameters, 0)), path)

    def _opened(self, parameters: Values | None, seed: int) -> ReferenceDevice:
        graph = starting_at(self.graph, parameters, np.float64) if parameters else self.graph
        device = ReferenceDevice(dtype=np.float64)
        device.load(graph, {"*": UpdateRule()}, DeviceOptions(updates="off", seed=seed))
        return device

    def explain(self) -> str:
        """The state of every edge, and why it has these fields."""
        return explain(self.graph, self.places, self.dims)


def compile(model: Callable[[Any], None], spec: Spec, name: str | None = None) -> Compiled:
    """Call the model once with a stand-in for an instance, and deduce states, keys and their inverses.

    model: a function, or an object with `__call__`, of one instance; its layers are named after the
    attributes or variables that hold them. FrontendError names the line of the model that cannot work.
    """
    if not isinstance(spec, Spec):
        raise FrontendError(f"expected a specification of the instances, such as Record(...), got {spec!r}")
    trace, declared = Trace(layer_names(model)), Declared()
    with tracing(trace):
        instance, encoder = spec.declare(declared, (), Level())
        try:
            model(read(instance))
        except ProgramError as error:
            raise FrontendError(str(error), origin(error)) from error
        schema = Schema(declared.attrs, declared.tables, declared.data, tuple(declared.axioms))
        graph = finish(trace, name or _name(model), schema, _defined(model))
    try:
        infer(graph)
    except GraphError as error:
        place = trace.net.places.get(error.node or "")
        raise FrontendError(str(error), place) if place else error from error
    for place, message in trace.notes:
        warnings.warn(f"{place}: {message}", FrontendNote, stacklevel=2)
    imported = _imported(trace, graph)
    return Compiled(graph, spec, dict(trace.net.places), tuple(trace.net.dims), encoder, imported)


def _imported(trace: Trace, graph: Graph) -> dict[str, TorchState]:
    """By layer, or by what several layers are the parts of, the tensors that came from PyTorch."""
    names = {layer: name for layer, name in trace.net.layer_names.items() if name in graph.nodes}
    present = {name: {p.name for p in graph.nodes[name].params} for name in names.values()}
    found: dict[str, TorchState] = {}
    for layer, name in names.items():
        if hasattr(layer, "torch_state"):
            found[name] = layer.torch_state(present[name])
    for whole, name in whole_names(trace.given_names).items():
        nodes = {part: names[layer] for part, layer in whole.parts.items() if layer in names}
        if nodes and hasattr(whole, "torch_state"):
            found[name] = whole.torch_state(nodes, present)
    return found


def encoder_of(spec: Spec) -> Encoder:
    """What writes instances that look like this, under the names that a model's schema has."""
    with tracing(Trace({})):
        return spec.declare(Declared(), (), Level())[1]


def _defined(model: Any) -> SourceLine | None:
    """Where the function is written; None of one that is not written in Python."""
    function = model if inspect.isroutine(model) else type(model).__call__
    code = getattr(inspect.unwrap(function), "__code__", None)
    return SourceLine(code.co_filename, code.co_firstlineno, code.co_name) if code else None


def _name(model: object) -> str:
    name: str = getattr(model, "__name__", type(model).__name__)
    return name.strip("<>").replace("_", "-").lower()
