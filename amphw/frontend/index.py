"""What a value depends on: dimensions, and choices between branches.

A dimension becomes a field of the state of every message that depends on it. A choice becomes routing. Both
together, in the order in which they were made, are the *context* of a value; the frontend deduces it, and an
author never sees it but in `explain()`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amphw.frontend.source import FrontendError, SourceLine
from amphw.ir.expr import Expr, Field
from amphw.ir.graph import PortRef
from amphw.ir.state import FieldType

if TYPE_CHECKING:
    from amphw.frontend.tensor import Tensor


@dataclass(eq=False)
class Dim:
    """One index of a value: a position in a sequence, a node of a tree, a turn of a loop.

    extent: number of its values, over the fields of the dimensions in `needs`; at most `bound`, at least
    `least`. why: what made it, for `explain`. capture: set where the network decides how far it goes, so that
    nothing from outside can be spread over it; what a body reads from outside travels with the messages.
    """

    name: str
    extent: Expr
    bound: int
    number: int
    why: str
    place: SourceLine
    least: int = 1
    needs: Context = ()
    capture: Captures | None = None
    closed: bool = False

    @property
    def at(self) -> Expr:
        return Field(self.name)

    @property
    def field(self) -> FieldType:
        return FieldType(self.name, self.extent, self.bound)


@dataclass(eq=False)
class Choice:
    """One branch of a decision: its values exist where `index`, over the fields of the state, is `branch`.

    proven: the index cannot but be that of a branch. capture: set where the network decides, so that values
    from outside take part in the decision to get in.
    """

    name: str
    index: Expr
    branch: int
    branches: int
    decision: object
    number: int
    place: SourceLine
    needs: Context = ()
    capture: Captures | None = None
    closed: bool = False
    proven: bool = True


Entry = Dim | Choice
Context = tuple[Entry, ...]


@dataclass(eq=False)
class Captures:
    """Values from outside that a body reads whose turns the network decides, in the order of their first use.

    `found` are they, by output; `inside` what stands for them within the body: none on a trial run, which is
    made to find them. around: the context of what decides. entered: what a value has got in its context once
    it is inside. trigger: a value that exists whenever the body runs. route: takes a value that has more
    dimensions than what decides into a branch; none in a loop, beside whose carry such a value travels.
    """

    route: Callable[[Tensor, Choice], Tensor] | None = None
    around: Context = ()
    entered: Context = ()
    trigger: Tensor | None = None
    inside: list[Tensor] | None = None
    found: dict[PortRef, Tensor] = field(default_factory=dict)

    def enter(self, entered: Context, trigger: Tensor, inside: list[Tensor] | None = None) -> None:
        """What follows is traced in the part of the body that this gets a value into."""
        self.entered, self.trigger, self.inside = entered, trigger, inside


def dims_of(context: Context) -> tuple[Dim, ...]:
    return tuple(e for e in context if isinstance(e, Dim))


def choices_of(context: Context) -> tuple[Choice, ...]:
    return tuple(e for e in context if isinstance(e, Choice))


def union(*contexts: Context) -> Context:
    """All entries and what they need, in the order made; FrontendError where they exclude one another."""
    found: set[Entry] = set()
    waiting = [e for c in contexts for e in c]
    while waiting:
        if (e := waiting.pop()) not in found:
            found.add(e)
            waiting.extend(e.needs)
    entries = sorted(found, key=lambda e: (e.number, e.name))
    chosen: dict[object, Choice] = {}
    for e in entries:
        if e.closed:
            what = f"the loop at {e.place}" if isinstance(e, Dim) else f"a branch of the choice at {e.place}"
            raise FrontendError(
                f"a value from inside {what} is used outside of it; return it from the body instead"
            )
        if isinstance(e, Choice) and chosen.setdefault(e.decision, e) is not e:
            raise FrontendError(
                f"values from two branches of the choice at {e.place} meet; a branch must return what is "
                "used behind it"
            )
    return tuple(entries)


def without(context: Context, *gone: Entry) -> Context:
    return tuple(e for e in context if e not in gone)
