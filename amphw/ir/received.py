"""What somebody else's updates have applied, applied here as well: by ranges of a node's parameters.

Defined once for every executor that runs in floats (partial gradient exchange: Ako, SoCC 2016, algorithm 1,
line 13), with what a device says that does so while instances are in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from amphw.ir.errors import NonFiniteError
from amphw.ir.update import NodeParameters, UpdateRule


class Received(NamedTuple):
    """A contiguous part of somebody else's gradient of one parameter.

    inside: where it is in the parameter, flattened in C order; with a start and a stop. values: [stop -
    start], the sum of what `updates` updates have applied, over `rows` gradient rows, each as its rule had
    clipped it.
    """

    node: str
    name: str
    inside: slice
    values: np.ndarray
    rows: int
    updates: int

    def factor(self, rule: UpdateRule) -> float:
        """What values are multiplied by: n updates count as n times their mean over rows, or as their sum
        where the rule takes sums."""
        return self.updates / self.rows if rule.reduce == "mean" else 1.0


@runtime_checkable
class Receives(Protocol):
    """A device that takes part in an exchange while instances are in flight.

    One thread beside the one that submits and polls may then call this and `Tells.told`. No update of a node
    is told in parts, and none twice.
    """

    def receive(self, ranges: Sequence[Received]) -> None:
        """Apply what others have updated with, as `receive` below does.

        Nothing that the nodes' own updates make of the values at the same time is lost, and versions, which
        count those, stay as they are.
        """
        ...


def checked(ranges: Iterable[Received]) -> list[Received]:
    """Those that have any rows. Raises NonFiniteError, which names the parameter, where one is not finite."""
    found = [each for each in ranges if each.rows]
    for each in found:
        if not np.isfinite(each.values).all():
            raise NonFiniteError(each.node, "backward", f"the gradient of '{each.name}'")
    return found


def receive(parameters: Mapping[str, NodeParameters], ranges: Sequence[Received]) -> None:
    """Every range is an update of its own, also where the node has no rows of its own.

    The optimiser's arrays move on in the range alone, with the rate and the scalars of the node's last own
    update, whose number stays. Clipping was done before sums were taken, and decay is each one's own. Raises
    as `checked` does, before anything has changed.
    """
    given = checked(ranges)
    fresh: dict[tuple[str, str], np.ndarray] = {}
    for each in given:
        p, key = parameters[each.node], (each.node, each.name)
        value = fresh[key] = fresh[key] if key in fresh else p.values[each.name].copy()
        scalars = p.rule.scalars(max(0, p.version - 1), dict(p.state))
        rule = replace(p.rule, reduce="sum", clip=0.0, weight_decay=0.0)
        part = value.reshape(-1)[each.inside]
        slots = [slot.reshape(-1)[each.inside] for slot in p.slots[each.name]]
        gradient = each.values * value.dtype.type(each.factor(p.rule))
        part[...] = rule.step(part, gradient, slots, 1, scalars)
    for (node, name), value in fresh.items():
        parameters[node].values = {**parameters[node].values, name: value}
