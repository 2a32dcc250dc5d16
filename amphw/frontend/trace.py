"""The graph while it is written down: nodes, what feeds them, and the author's lines that made them.

An output may have any number of readers here; `finish.py` adds the Bcast and Discard that the IR wants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amphw.frontend.index import Captures, Choice, Context, Dim, union
from amphw.frontend.source import FrontendError, SourceLine, here
from amphw.ir.expr import Expr, lift
from amphw.ir.graph import PortRef, Region
from amphw.ir.grouping import Group
from amphw.ir.nodes import PPT, Node
from amphw.ir.program import ParamSpec

if TYPE_CHECKING:
    from amphw.frontend.layers import Layer

_current: ContextVar[Trace] = ContextVar("trace")


@dataclass
class Call:
    """One use of a layer: the node that stands for it until all uses are known.

    apart: where this is a Group that computes the layer as well, the two nodes that do the same. function:
    which of the layer's functions this is, "" where it is called itself.
    """

    node: str
    context: Context
    rows: Dim | None
    apart: tuple[Group, PPT] | None = None
    function: str = ""


@dataclass
class Netlist:
    """What a trial run must leave as it was."""

    nodes: dict[str, Node] = field(default_factory=dict)
    inputs: dict[PortRef, PortRef] = field(default_factory=dict)  # in-port -> the out-port it reads
    places: dict[str, SourceLine] = field(default_factory=dict)
    region_of: dict[str, str] = field(default_factory=dict)
    regions: dict[str, Region] = field(default_factory=dict)
    calls: dict[Layer, list[Call]] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    layer_names: dict[Layer, str] = field(default_factory=dict)
    dims: list[Dim] = field(default_factory=list)
    made: dict[Any, Any] = field(default_factory=dict)  # what is made once: copies, choices, units

    def copy(self) -> Netlist:
        calls = {layer: list(made) for layer, made in self.calls.items()}
        kept = {k: v.copy() for k, v in vars(self).items() if k != "calls"}
        return Netlist(**kept, calls=calls)


class Trace:
    """One model being written down."""

    def __init__(self, layer_names: Mapping[Layer, str]):
        self.net = Netlist()
        self.given_names = dict(layer_names)
        self.open_regions: list[str] = []
        self.captures: list[Captures] = []  # of the bodies that are being traced
        self.active: list[Choice] = []  # the branches that are
        self.turns: list[Dim] = []  # the dimensions of the loops whose bodies are
        self.notes: dict[tuple[SourceLine, str], None] = {}  # what is odd, but may be meant
        self.owners: dict[int, tuple[ParamSpec, Layer, str]] = {}  # by `id`: whose a parameter is
        self._number = 0
        self._of_layers = {_plain(layer.name or name) for layer, name in layer_names.items()}

    def note(self, message: str, place: SourceLine | None = None) -> None:
        self.notes[place or here(), message] = None

    # -- names and numbers ---------------------------------------------------------------------------

    def number(self) -> int:
        self._number += 1
        return self._number

    def name(self, stem: str, *, chosen: bool = False) -> str:
        """`stem`, or `stem_2`, `stem_3` where it is taken, or the name of one of the author's layers.

        chosen: whether the author has called it so.
        """
        stem = _plain(stem)
        if stem in self._of_layers and not chosen:
            return self.name(f"{stem}_2")
        count = self.net.names[stem] = self.net.names.get(stem, 0) + 1
        if count == 1:
            return stem
        return self.name(f"{stem}_{count}")

    def layer_name(self, layer: Layer) -> str:
        if layer not in self.net.layer_names:
            stem = layer.name or self.given_names.get(layer) or type(layer).__name__.lower()
            self.net.layer_names[layer] = self.name(stem, chosen=True)
        return self.net.layer_names[layer]

    def own(self, layer: Layer, name: str, spec: ParamSpec) -> None:
        """FrontendError where the same parameter has been given to another layer: it would not be shared."""
        _, owner, called = self.owners.setdefault(id(spec), (spec, layer, name))
        if owner is not layer or called != name:
            theirs, ours = self.layer_name(owner), self.layer_name(layer)
            raise FrontendError(
                f"one `parameter(...)` is given to '{theirs}' as {called} and to '{ours}' as {name}, which "
                "would be two parameters that start alike; call `parameter` for each, or, to share it, "
                "write one layer with several functions: "
                "`fe.Layer(shapes={...}, encode=lambda p, x: ..., decode=lambda p, h: ...)`"
            )

    def dim(
        self,
        stem: str,
        extent: Expr | int,
        bound: int,
        why: str,
        *,
        least: int = 1,
        needs: Context = (),
        capture: Captures | None = None,
        place: SourceLine | None = None,
    ) -> Dim:
        made = Dim(
            self.name(stem), lift(extent), bound, self.number(), why, place or here(), least, needs, capture
        )
        self.net.dims.append(made)
        return made

    def choice(
        self, stem: str, index: Expr, branches: int, needs: Context, capture: Captures | None = None
    ) -> list[Choice]:
        """The branches of one decision."""
        name, number, decision, place = self.name(stem), self.number(), object(), here()
        numbers = range(branches)
        return [Choice(name, index, k, branches, decision, number, place, needs, capture) for k in numbers]

    @contextmanager
    def turning(self, dim: Dim) -> Iterator[None]:
        """Inside is the body of the loop over `dim`."""
        self.turns.append(dim)
        try:
            yield
        finally:
            self.turns.pop()

    @contextmanager
    def capturing(self, captures: Captures) -> Iterator[None]:
        """Inside is a body that the network decides about."""
        self.captures.append(captures)
        try:
            yield
        finally:
            self.captures.remove(captures)

    @contextmanager
    def within(self, choice: Choice) -> Iterator[None]:
        """Whatever is computed inside is computed in this branch, and only there."""
        self.active.append(choice)
        try:
            yield
        finally:
            self.active.pop()

    @contextmanager
    def outside(self, choice: Choice) -> Iterator[None]:
        """Whatever is computed inside is computed whichever branch is taken."""
        active, captures = self.active, self.captures
        self.active = active[: active.index(choice)]
        self.captures = captures[: [c is choice.capture for c in captures].index(True)]
        try:
            yield
        finally:
            self.active, self.captures = active, captures

    # -- nodes ---------------------------------------------------------------------------------------

    def emit(self, node: Node, inputs: Mapping[str, PortRef]) -> str:
        """Add a node, whose name must be fresh -> its name. A loop's back edge is connected later."""
        self.net.nodes[node.name] = node
        self.net.places[node.name] = here()
        if self.open_regions:
            self.net.region_of[node.name] = self.open_regions[-1]
        for port, source in inputs.items():
            self.net.inputs[(node.name, port)] = source
        return node.name

    @contextmanager
    def region(self, stem: str, kind: str, *fields: str) -> Iterator[str]:
        name = self.name(stem)
        parent = self.open_regions[-1] if self.open_regions else None
        self.net.regions[name] = Region(name, kind, fields, parent)
        self.open_regions.append(name)
        try:
            yield name
        finally:
            self.open_regions.pop()

    @property
    def surroundings(self) -> Context:
        """What every loop and every choice that begins here depends on at least."""
        return union(tuple(self.active), *(c.entered for c in self.captures))

    @property
    def inside(self) -> Context:
        """What tells apart the turns of all loops in whose bodies we are, and where a choice has led."""
        return union(self.surroundings, tuple(self.turns))

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Whatever is traced inside is forgotten."""
        kept, self.net = self.net, self.net.copy()
        number, regions = self._number, list(self.open_regions)
        captures, found = list(self.captures), [dict(c.found) for c in self.captures]
        try:
            yield
        finally:
            self.net, self._number, self.open_regions, self.captures = kept, number, regions, captures
            for c, before in zip(captures, found, strict=True):
                c.found = before


def trials(parts: int = 1) -> range:
    """How often a body is traced to find what it depends on: that grows by what is around it, and what one
    part of a carry depends on may reach the others one by one."""
    return range(7 + parts)


def _plain(stem: str) -> str:
    """Without what the name of a node cannot have."""
    return re.sub(r"[^\w?]+", "_", stem).strip("_") or "node"


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


def current() -> Trace:
    """The model that is being written down."""
    try:
        return _current.get()
    except LookupError:
        raise FrontendError(
            "this belongs into a model's function, which amphw.frontend.compile calls; there is none here"
        ) from None
