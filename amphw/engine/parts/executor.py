"""Executors outside of the engine, as it knows them: kernels of their own, in memory that both share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from amphw.engine.lowering.lower import Unit
from amphw.engine.parts.arena import Arena
from amphw.engine.policy import KINDS
from amphw.engine.tiles.code import TiledUnit
from amphw.ir.device import Capabilities
from amphw.ir.graph import Graph
from amphw.ir.update import NodeParameters, UpdateRule

UPDATE = len(KINDS)
"""Kind of a reduction that updates parameters; -1: one that does not."""


@dataclass
class Running:
    """Work that a queue holds. number: of a frame, or below 0 of a reduction.

    waits: nothing of it is handed on before it is done. leaves: messages of it leave the region then.
    """

    number: int
    event: Any
    began: float
    unit: int
    kind: int
    rows: int
    waits: bool = False
    leaves: bool = False
    flow: int | None = None
    sent: list[Any] = field(default_factory=list)
    """Uploads before it."""


class RegionMemory(Protocol):
    """An executor's view of the shared memory. shared: it is the host's memory itself, nothing is copied."""

    shared: bool

    def upload(self, place: int, words: int) -> None:
        """Give the executor what the host has written, before what enters the queue next."""
        ...

    def download(self, place: int, words: int) -> None:
        """Bring what the executor has written to the host's view; waits."""
        ...


class RegionParameters(Protocol):
    """A node's parameters, which stay with the executor."""

    def reduce(self, job: int, rows: Sequence[int]) -> Any: ...

    def update(self, job: int, gradient_rows: int, version: int) -> Any: ...

    def push(self, node: NodeParameters) -> None: ...

    def fetch(self, node: NodeParameters) -> None: ...


class Executor(Protocol):
    """worker: of the engine, as which it gets its frames. depth: frames in its queue."""

    worker: int
    label: str
    depth: int
    running: list[Running]
    busy_until: float

    @property
    def memory(self) -> RegionMemory: ...

    @property
    def parameters(self) -> Any:
        """`RegionParameters` by unit."""
        ...

    largest_gradients: dict[str, list[float]]

    def runs(self, unit: int) -> bool: ...

    def run(self, job: tuple[Any, ...], fetched: Sequence[tuple[int, int]] = ()) -> Running:
        """Put a frame into the queue. job: as the engine's `take` gives it. fetched: (place, words) that come
        to the host's view behind it."""
        ...

    def note(self, running: Running) -> Running: ...

    def done(self) -> list[Running]: ...

    def wait(self) -> None: ...

    def finish(self) -> None: ...

    def fault(self) -> Exception | None: ...

    def read_gradients(self) -> None:
        """Bring `largest_gradients` up to date; waits for what is in the queue."""
        ...

    def launches(self) -> dict[str, dict[str, dict[str, int]]]:
        """By unit and direction, how many frames there were, and how many launches for them; of a unit with
        parameters also the launches for parts of the gradient log, and for updates."""
        ...

    def explained(self, error: BaseException) -> BaseException:
        """What to tell of an error in a call of this executor: DeviceLostError where the device is gone."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class RegionPart(Protocol):
    """A device that can have a region of a run with others."""

    def capabilities(self) -> Capabilities: ...

    def refused(self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule]) -> str:
        """Why the node cannot be placed here; empty: it can."""
        ...

    def shared_bytes(self, settings: Mapping[str, Any]) -> tuple[int, int]:
        """How large the memory should be that it shares with the engine, and how large it may be. Raises
        AmphwError for a setting that it cannot have."""
        ...

    def open(
        self,
        worker: int,
        label: str,
        units: Sequence[tuple[Unit, TiledUnit]],
        params: dict[str, NodeParameters],
        arena: Arena,
        settings: Mapping[str, Any],
    ) -> Executor:
        """Make everything ready that computes these units."""
        ...
