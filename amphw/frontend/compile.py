"""`compile`: a model and the specification of its instances -> a graph, and how to encode instances."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amphw.frontend.encoding import Encoder, encode
from amphw.frontend.explain import explain
from amphw.frontend.finish import finish
from amphw.frontend.index import Dim
from amphw.frontend.layers import layer_names
from amphw.frontend.source import FrontendError, FrontendNote, SourceLine, origin
from amphw.frontend.spec import Declared, Level, Spec
from amphw.frontend.trace import Trace, tracing
from amphw.ir.check import infer
from amphw.ir.errors import GraphError, InstanceError, ProgramError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema


@dataclass(frozen=True, repr=False)
class Compiled:
    """A model ready to run: `graph` for any device, `encode` for instances, `explain` for people.

    places: node -> the author's line that made it. dims: what the fields of the states are. encoder: what
    writes instances under the names of the graph's schema.
    """

    graph: Graph
    spec: Spec
    places: dict[str, SourceLine]
    dims: tuple[Dim, ...]
    encoder: Encoder

    def __repr__(self) -> str:
        nodes, owners = len(self.graph.nodes), len(self.graph.parameterised)
        return f"Compiled({self.graph.name}: {nodes} nodes, {owners} of them with parameters)"

    def encode(self, value: Any, number: int = 0) -> Instance:
        """The instance of plain Python and numpy; InstanceError naming the instance and the part in it."""
        try:
            e = encode(self.encoder, value)
        except InstanceError as error:
            raise InstanceError(f"instance {number}: {error}") from None
        return Instance(e.attrs, e.tables, e.data, number)

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
            model(instance)
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
    return Compiled(graph, spec, dict(trace.net.places), tuple(trace.net.dims), encoder)


def _defined(model: Any) -> SourceLine | None:
    """Where the function is written; None of one that is not written in Python."""
    function = model if inspect.isroutine(model) else type(model).__call__
    code = getattr(inspect.unwrap(function), "__code__", None)
    return SourceLine(code.co_filename, code.co_firstlineno, code.co_name) if code else None


def _name(model: object) -> str:
    name: str = getattr(model, "__name__", type(model).__name__)
    return name.strip("<>").replace("_", "-").lower()
