"""The firings of an instance, and who sends to whom: its plan's messages, walked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amphw.engine.lowering.lower import Lowered
from amphw.engine.numpy_plane.slots import FAULT, Route, SlotPlan
from amphw.engine.parts.costs import FLOAT_BYTES
from amphw.ir.errors import AmphwError

Decides = Callable[[int, int], int]
"""(unit, firing) -> number of the outcome that the firing decides for, as the plan numbers them."""


class DecidesItsRoutes(AmphwError):
    """A node decides by its values where messages go: the plan alone does not tell."""


@dataclass(frozen=True)
class Shape:
    """The firings of an instance that occur, numbered over all units.

    By firing: its unit, its rows, the messages it needs, the firings it sends to, and those it returns
    gradients to; returned: the messages that it sends back, those to sources included. first: the firings
    that the sources send to. Bytes of the payloads of all these messages, in the same order; none given: all
    are empty. ahead, back: microseconds that the firing adds to its frame, forward and backward; none given:
    frames take what their rows do.
    """

    unit: Sequence[int]
    rows: Sequence[int]
    need: Sequence[int]
    targets: Sequence[Sequence[int]]
    origins: Sequence[Sequence[int]]
    returned: Sequence[int]
    first: Sequence[int]
    size: int = 1  # what the model counts
    target_bytes: Sequence[Sequence[int]] = ()
    origin_bytes: Sequence[Sequence[int]] = ()
    first_bytes: Sequence[int] = ()
    ahead: Sequence[float] = ()
    back: Sequence[float] = ()


@dataclass(frozen=True)
class Walk:
    """A shape, and what else was seen on the way.

    order: the firings that occur, each behind all that send to it; those of sources come first. at: by
    firing, its number within its unit. sent: by firing, the routes that its messages take.
    """

    shape: Shape
    order: Sequence[int]
    at: Sequence[int]
    sent: Sequence[Sequence[Route]]

    @property
    def messages(self) -> int:
        """As a device counts them, forward."""
        return len(self.shape.first) + sum(map(len, self.shape.targets))

    def longest(
        self, spent: Sequence[float], crossing: Callable[[int, int], float] = lambda source, target: 0.0
    ) -> float:
        """Seconds of the longest chain of messages, where a firing of unit u takes spent[u] seconds, and a
        message from one unit to another `crossing`."""
        unit, done = self.shape.unit, [0.0] * len(self.shape.unit)
        for at in self.order:
            here = done[at] = done[at] + spent[unit[at]]
            for target in self.shape.targets[at]:
                done[target] = max(done[target], here + crossing(unit[at], unit[target]))
        return max(done, default=0.0)


def shape_of(lowered: Lowered, plan: SlotPlan) -> Shape:
    """See `walk`."""
    return walk(lowered, plan).shape


def walk(lowered: Lowered, plan: SlotPlan, decides: Decides | None = None) -> Walk:
    """Run the plan's messages once. Raises DecidesItsRoutes for a graph whose routes depend on what it
    computes, unless `decides` tells."""
    base = [0]
    for u, table in zip(lowered.units, plan.units, strict=True):
        if u.decisions > 1 and decides is None:
            raise DecidesItsRoutes(
                f"node '{u.name}' decides by its values where messages go, which costs do not tell"
            )
        base.append(base[-1] + table.size)
    unit: list[int] = []
    rows: list[int] = []
    left: list[int] = []
    numbers: list[int] = []
    first: list[int] = []
    first_bytes: list[int] = []
    sources: list[int] = []
    sent: list[list[Route]] = [[] for _ in range(base[-1])]
    for u, table in zip(lowered.units, plan.units, strict=True):
        counts = next(iter(table.spaces.values()), 0)
        for at in range(table.size):
            if u.behaviour.is_source:
                sources.append(len(unit))
                sent[len(unit)] = _taken(table.routes[at])
                first += [base[r[0]] + r[2] for r in sent[len(unit)]]
                first_bytes += [message_bytes(lowered, plan, r) for r in sent[len(unit)]]
            unit.append(u.index)
            numbers.append(at)
            rows.append(counts if isinstance(counts, int) else counts[at])
            left.append(table.need[at] if u.operands else 0)
    need = list(left)
    order: list[int] = []
    waiting = list(first)
    targets: list[list[int]] = [[] for _ in unit]
    origins: list[list[int]] = [[] for _ in unit]
    target_bytes: list[list[int]] = [[] for _ in unit]
    origin_bytes: list[list[int]] = [[] for _ in unit]
    while waiting:
        at = waiting.pop()
        left[at] -= 1
        if left[at]:
            continue
        order.append(at)
        u, number = lowered.units[unit[at]], numbers[at]
        if u.decisions > 1 and decides is not None:
            number = number * u.decisions + decides(u.index, number)
        sent[at] = _taken(plan.units[u.index].routes[number])
        targets[at] = [base[r[0]] + r[2] for r in sent[at]]
        waiting += targets[at]
        for target, route in zip(targets[at], sent[at], strict=True):
            size = message_bytes(lowered, plan, route)
            target_bytes[at].append(size)
            origins[target].append(at)
            wanted = lowered.units[route[0]].operands[route[1]].needs_gradient
            origin_bytes[target].append(size if wanted else 0)
    shape = Shape(
        unit,
        rows,
        need,
        targets,
        origins,
        need,
        first,
        target_bytes=target_bytes,
        origin_bytes=origin_bytes,
        first_bytes=first_bytes,
    )
    return Walk(shape, [*sources, *order], numbers, sent)


def message_bytes(lowered: Lowered, plan: SlotPlan, route: Route) -> int:
    """Of the payload that takes this route."""
    target, operand, firing, _, row, _ = route
    rows = 1 if row >= 0 else value_at(plan.units[target].rows[operand], firing)
    return rows * lowered.units[target].operands[operand].width * FLOAT_BYTES


def value_at(values: int | Sequence[int], at: int) -> int:
    """One of a plan's counts, which is an int where all are alike."""
    return values if isinstance(values, int) else values[at]


def _taken(routes: Sequence[Route]) -> list[Route]:
    """A route that leads nowhere belongs to a state that does not occur: the device would refuse it."""
    return [r for r in routes if r[0] != FAULT and r[2] >= 0]
