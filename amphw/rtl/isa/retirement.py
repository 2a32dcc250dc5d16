"""Retirement records: what became of each firing on a circuit, and the rules that all of them keep.

A firing retires when the engines are through with it. Its record is made of what the circuit tells whoever
watches it (`amphw.rtl.isa.events`) and of what the host knows: which instance has a slot, and of which
generation it is. The rules hold of every circuit and every order in which it may serve messages, so whoever
watches one, a bench or a run of the simulation, has them judged here.

No firing is lost, doubled, or run twice for its slot's generation. A node's version never goes back: it is
what its updates add up to, and a backward firing's is not before its forward one's. As many words are written
as the plan says. What began has ended when the circuit says that it rests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from amphw.engine.numbering import FrameKind
from amphw.ir.errors import AmphwError
from amphw.rtl.isa.events import What

# Events are many: members of enumerations are looked up once.
_BEGIN, _END, _WRITE = int(What.BEGIN), int(What.END), int(What.WRITE)
_FORWARD, _BACKWARD, _INFER = int(FrameKind.FORWARD), int(FrameKind.BACKWARD), int(FrameKind.INFER)
_KINDS = sorted(FrameKind)
_NONE = range(0)


class RetirementError(AmphwError):
    """A circuit broke a rule. The message names slot, generation and node, and says what happened."""


class Retired(NamedTuple):
    """A firing that has run.

    firing: its number among those of the node in its instance. version: of the node's parameters, as often
    as they had been updated. words: that the engines wrote meanwhile; None where nobody watched them.
    """

    slot: int
    generation: int
    node: str
    firing: int
    kind: FrameKind
    version: int
    words: int | None

    def __str__(self) -> str:
        return (
            f"slot {self.slot}, generation {self.generation}, node '{self.node}', firing {self.firing}, "
            f"{self.kind.name.lower()}"
        )


@dataclass
class _Instance:
    """One on the device. firings: by unit, their numbers there. forward: versions of those that have run
    forward, by unit and firing, until they have run backward. done: kinds and numbers of what has run."""

    generation: int
    trains: bool
    firings: Mapping[int, range]
    forward: dict[tuple[int, int], int] = field(default_factory=dict)
    done: set[tuple[int, int]] = field(default_factory=set)


class Retirement:
    """Judges what a circuit tells, event by event; what breaks a rule raises RetirementError.

    nodes: by the number of a unit on the device. words: given slot, kind, unit and firing (by its number in
    the instance), how many words it writes; None: nobody watches them.
    """

    def __init__(
        self, nodes: Sequence[str], words: Callable[[int, FrameKind, int, int], int] | None = None
    ) -> None:
        self.nodes, self._words = nodes, words
        self.versions = [0] * len(nodes)
        self._held: dict[int, _Instance] = {}
        # What was told of the firing that runs (kind, unit, slot, number), its record, and whose it is.
        self._running: tuple[tuple[int, int, int, int], Retired, _Instance] | None = None
        self._written = 0

    # --- what the host does -----------------------------------------------------------------------

    def begins(self, slot: int, generation: int, trains: bool, firings: Mapping[int, range]) -> None:
        """An instance takes a slot. firings: by unit, their numbers on the device."""
        self._held[slot] = _Instance(generation, trains, firings)

    def ends(self, slot: int) -> None:
        """The instance leaves its slot: all that it began has run, in training in both directions."""
        held = self._held[slot]
        for unit, firing in held.forward:
            self._lost(slot, unit, firing, "ran forward, and its instance ended before it ran backward")
        if self._running is not None and self._running[1].slot == slot:
            self._broken(self._running[1], "its instance ended while it runs")
        del self._held[slot]

    def loads(self, unit: int, version: int) -> None:
        """The host writes a version; what ran with the ones before is not compared with it."""
        self.versions[unit] = version
        for held in self._held.values():
            held.forward = {key: 0 if key[0] == unit else was for key, was in held.forward.items()}

    # --- what the circuit says --------------------------------------------------------------------

    def told(self, unit: int, version: int) -> None:
        """It answers which version a unit has: as many updates as it told of."""
        if version != self.versions[unit]:
            raise RetirementError(
                f"node '{self.nodes[unit]}': its version is {version}, but its updates make it "
                f"{self.versions[unit]}"
            )

    def rests(self) -> None:
        """It says that nothing is left to do."""
        if self._running is not None:
            self._broken(self._running[1], "the circuit says that it rests, and it has not ended")

    def note(self, event: Mapping[str, int]) -> Retired | None:
        """What happened, as `events.unpack` has it -> the record of a firing that has retired."""
        what = event["what"]
        if what == _WRITE:
            self._written += 1
        elif what == _BEGIN:
            self._begin(event["kind"], event["unit"], event["slot"], event["firing"])
        elif what == _END:
            return self._end(event["kind"], event["unit"], event["slot"], event["firing"])
        else:
            self._update(event["unit"])
        return None

    def _begin(self, kind: int, unit: int, slot: int, number: int) -> None:
        held = self._held.get(slot)
        if held is None:
            self._nobody(slot, unit, number)
        of_unit = held.firings.get(unit, _NONE)
        firing = number - of_unit.start
        run = Retired(
            slot, held.generation, self.nodes[unit], firing, _KINDS[kind], self.versions[unit], None
        )
        if self._running is not None:
            self._broken(run, f"began before another one ended ({self._running[1]})")
        if number not in of_unit:
            self._broken(run, f"the instance has {len(of_unit)} firing(s) of the node: this one is no firing")
        if held.trains == (kind == _INFER):
            self._broken(run, f"ran in an instance that {'trains' if held.trains else 'is only inferred'}")
        if (kind, number) in held.done:
            self._broken(run, "ran before in this generation")
        if kind == _BACKWARD and (unit, firing) not in held.forward:
            self._broken(run, "has not run forward")
        self._running, self._written = ((kind, unit, slot, number), run, held), 0

    def _end(self, kind: int, unit: int, slot: int, number: int) -> Retired:
        if self._running is None:
            self._nobody(slot, unit, number)
        began, run, held = self._running
        if (kind, unit, slot, number) != began:
            other = f"node '{self.nodes[unit]}', slot {slot}, number {number}, {_KINDS[kind].name.lower()}"
            self._broken(run, f"what ended is {other}")
        if self.versions[unit] < run.version:
            self._broken(run, f"the node's version went back from {run.version} to {self.versions[unit]}")
        held.done.add((kind, number))
        if kind == _FORWARD:
            held.forward[unit, run.firing] = run.version
        elif kind == _BACKWARD and run.version < (was := held.forward.pop((unit, run.firing))):
            self._broken(run, f"its version is {run.version}, and it ran forward with {was}")
        self._running = None
        if self._words is not None:
            run = run._replace(words=self._written)
            expected = self._words(slot, run.kind, unit, run.firing)
            if self._written != expected:
                self._broken(run, f"{self._written} word(s) were written, by the plan it is {expected}")
        return run

    def _update(self, unit: int) -> None:
        if self._running is not None:
            self._broken(self._running[1], f"node '{self.nodes[unit]}' was updated while it runs")
        self.versions[unit] += 1

    # --- errors -----------------------------------------------------------------------------------

    def _broken(self, run: Retired, what: str) -> NoReturn:
        raise RetirementError(f"{run}: {what}")

    def _lost(self, slot: int, unit: int, firing: int, what: str) -> NoReturn:
        held = self._held[slot]
        self._broken(
            Retired(slot, held.generation, self.nodes[unit], firing, FrameKind.FORWARD, 0, None), what
        )

    def _nobody(self, slot: int, unit: int, number: int) -> NoReturn:
        held = self._held.get(slot)
        generation = "none, it is free" if held is None else held.generation
        raise RetirementError(
            f"slot {slot}, generation {generation}, node '{self.nodes[unit]}', number {number}: "
            f"{'began for no instance' if held is None else 'ended, and has not begun'}"
        )
