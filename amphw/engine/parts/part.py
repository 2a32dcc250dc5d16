"""What a device is to a run that several devices share: it computes the frames of the nodes placed on it.

The C++ engine on the host joins operands, routes messages and keeps their rows, for all nodes; every operand
has a place reserved there before its instance is pumped. So a part is handed complete frames, never has to
wait for another part, and may take as long as it likes: what it owes is in the engine's queues. It holds the
parameters of its nodes, and what each firing leaves for the backward direction. A part that can join for
itself (`Joins`) also keeps what its nodes send each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from amphw.engine.lowering.lower import Lowered, Unit
from amphw.engine.parts.executor import RegionPart
from amphw.engine.parts.sleeper import Sleeper
from amphw.ir.device import Capabilities, Device, DeviceOptions, LinkRate, LinkUse, Mode, Statistics
from amphw.ir.errors import AmphwError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import NodeParameters, UpdateRule


@dataclass(frozen=True)
class PartFrame:
    """Firings of one node and kind that are ready.

    unit: number of the node in the lowered graph. kind: as `amphw.engine.policy` numbers them; INFER is a
    forward frame that has no backward one. slots, firings int32 [n]. rows[space]: int32 [n], rows of
    each firing. arrays: float32 [rows, width] over all firings, one after another; forward, of each operand;
    backward, what came back for each output of the program, summed (None: an integer). ints: int64 [rows]
    of each integer operand. brought: forward, of each operand, uint8 [messages] over all firings, whether the
    part is brought the message: of a part that joins for itself (`Joins`), `arrays` have the rows of these.
    leaves: of such a part, uint8 for each output, or backward operand, whether any row of it goes elsewhere.
    """

    number: int
    unit: int
    kind: int
    slots: np.ndarray
    firings: np.ndarray
    rows: Mapping[str, np.ndarray]
    arrays: Sequence[np.ndarray | None]
    ints: Sequence[np.ndarray]
    brought: Sequence[np.ndarray] = ()
    leaves: Sequence[int] | np.ndarray = ()

    @cached_property
    def totals(self) -> dict[str, int]:
        """Rows of all firings together, by space."""
        return {space: int(counts.sum()) for space, counts in self.rows.items()}

    def cut(self, array: np.ndarray, space: str, i: int) -> np.ndarray:
        """The rows of firing number i, of an array in `space` that holds those of all."""
        first = int(self.rows[space][:i].sum())
        return array[first : first + int(self.rows[space][i])]


@dataclass(frozen=True)
class PartResult:
    """What has become of frame `number`.

    arrays: float32 [rows, width] as in `PartFrame`; forward, of each output of the program (None: an integer
    that decides nothing); backward, of each operand (None: it needs no gradient). A part that joins for
    itself fills in what leaves it, and gives None where nothing does. decided: int64 [n] of each field that
    the node decides, its value for each firing.
    """

    number: int
    arrays: Sequence[np.ndarray | None]
    decided: Sequence[np.ndarray] = ()


class Part(Protocol):
    """One thread at a time calls these methods.

    depth: frames that it wants to be given before the first is done.
    """

    depth: int

    def capabilities(self) -> Capabilities: ...

    def refused(self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule]) -> str:
        """Why the node cannot be placed here; empty: it can."""
        ...

    def load(
        self,
        graph: Graph,
        lowered: Lowered,
        units: Sequence[Unit],
        rules: Mapping[str, UpdateRule],
        options: DeviceOptions,
    ) -> None:
        """Take these nodes. lowered: the graph that the engine runs, in which other nodes may be fused."""
        ...

    def begin(self, slot: int, generation: int, instance: Instance, mode: Mode) -> bool:
        """Reserve all that an instance may need, which is then pumped -> whether there was room for it.

        Without room it waits outside, since one that is in flight may share a frame with it. Raises
        AmphwError if it will never fit.
        """
        ...

    def end(self, slot: int) -> None:
        """The instance has retired, or was not pumped after all."""
        ...

    def start(self, frame: PartFrame) -> None:
        """Take a frame, and do not wait for it."""
        ...

    def finished(self, timeout: float) -> list[PartResult]:
        """Frames that are done, in any order; waits about `timeout` seconds at most where there are none.

        A backward frame that completes an interval is done once its update is published. Raises
        DeviceLostError where the device will not answer any more.
        """
        ...

    def update(self, nodes: Sequence[str]) -> None:
        """Apply what these nodes have accumulated."""
        ...

    def parameters(self) -> dict[str, NodeParameters]:
        """See `Device.parameters`."""
        ...

    def statistics(self) -> Statistics:
        """updates and staleness since the last call; the engine counts the rest."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class RefusesTogether(Protocol):
    """A part on which nodes share what there is a limit of."""

    def refused_together(self, graph: Graph, units: Sequence[Unit], rules: Mapping[str, UpdateRule]) -> str:
        """Why these nodes cannot all be placed here, none of which is refused alone; empty: they can."""
        ...


@runtime_checkable
class Joins(Protocol):
    """A part that may keep what its own nodes send each other, and join it itself, as a circuit does.

    The engine still counts those messages, and hands out a frame when its operands are complete there, which
    may be after the part has computed it: what others have sent is in the frame, what others will receive is
    in its result. A frame without either is done at once.
    """

    joins: bool


def joins(part: object) -> bool:
    """Whether what the part's own nodes send each other stays there."""
    return isinstance(part, Joins) and part.joins


def keeps(part: object) -> bool:
    """The same of a part of any kind: one that joins for itself, or a region."""
    return isinstance(part, RegionPart) or joins(part)


@runtime_checkable
class ShowsLife(Protocol):
    """A part that may be at work for long before it gives anything back.

    heard: when its device was last seen to be at work, as `time.perf_counter` tells.
    """

    heard: float


@runtime_checkable
class ModelsLink(Protocol):
    """A part whose link to the host is modelled."""

    def models_link(self) -> bool:
        """Whether it is: a part that stands for another one may not know before."""
        ...

    def state_link(self, rate: LinkRate) -> None:
        """What the link is like, before `load`; its capabilities say so from now on."""
        ...

    def link_use(self) -> LinkUse:
        """What went over it since `load`; the part is drained, and not closed."""
        ...


AnyPart = Part | RegionPart | Sleeper
"""What a device may offer: a part that is handed frames, a region of units, or one whose frames wait."""


@runtime_checkable
class OffersPart(Protocol):
    """A device that can be a part of a run."""

    def part(self) -> AnyPart:
        """A fresh one, with the device's own settings."""
        ...


def offered(device: Device) -> AnyPart:
    """The device's part of a run with others. Raises AmphwError where it has none, or not a whole one."""
    if not isinstance(device, OffersPart):
        raise AmphwError(f"the device {device.capabilities().name} cannot share a run with others")
    part = device.part()
    if isinstance(part, RegionPart | Sleeper):
        return part
    wanted = ["depth", *(name for name in vars(Part) if not name.startswith("_"))]
    if missing := [name for name in wanted if not hasattr(part, name)]:
        raise AmphwError(
            f"what {type(device).__name__}.part() gives lacks {', '.join(missing)}: "
            "python -m pydoc amphw.engine.parts.part.Part says what these do"
        )
    return part
