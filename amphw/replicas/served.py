"""What one server has of the parameters, and how it updates it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from amphw.ir.errors import NonFiniteError
from amphw.ir.exchange import Rows
from amphw.ir.update import UpdateRule


@dataclass
class Owned:
    """Of one parameter. values: a range of numbers, or rows; slots: the optimiser's arrays, of that shape.

    gradient: what is to be applied next; of a table the rows that have one, by their place among those owned.
    """

    node: str
    name: str
    values: np.ndarray
    slots: list[np.ndarray]
    gradient: np.ndarray | Rows | None = None

    def squares(self) -> float:
        """Of the gradient's numbers."""
        g = self.gradient.values if isinstance(self.gradient, Rows) else self.gradient
        return 0.0 if g is None else float(np.sum(np.square(g, dtype=np.float64)))

    def scale(self, factor: float) -> None:
        if isinstance(self.gradient, Rows):
            self.gradient.values *= self.values.dtype.type(factor)
        elif self.gradient is not None:
            self.gradient *= self.values.dtype.type(factor)

    def check(self) -> None:
        g = self.gradient.values if isinstance(self.gradient, Rows) else self.gradient
        if g is not None and not np.isfinite(g).all():
            raise NonFiniteError(self.node, "backward", f"the gradient of '{self.name}'")

    def step(self, rule: UpdateRule, scalars: Mapping[str, float]) -> None:
        """Apply the gradient, which is scaled and clipped already."""
        rule = replace(rule, reduce="sum", clip=0.0)
        g, self.gradient = self.gradient, None
        if not isinstance(g, Rows):
            assert g is not None, (self.node, self.name)
            self.values = rule.step(self.values, g, self.slots, 1, scalars)
            return
        if rule.row.memoryless and rule.weight_decay == 0.0:  # the other rows would stay as they are
            at = g.numbers
            slots = [slot[at] for slot in self.slots]
            self.values[at] = rule.step(self.values[at], g.values, slots, 1, scalars)
            for slot, new in zip(self.slots, slots, strict=True):
                slot[at] = new
            return
        whole = np.zeros_like(self.values)
        g.into(whole)
        self.values = rule.step(self.values, whole, self.slots, 1, scalars)


class NodeClock:
    """How often a node has updated, and the optimiser's scalars: the same on all servers."""

    def __init__(self, rule: UpdateRule, version: int, state: Mapping[str, float]):
        self.rule, self.version, self.state = rule, version, dict(state)

    def tick(self) -> Mapping[str, float]:
        """The scalars of the next update."""
        scalars = self.rule.scalars(self.version, self.state)
        self.version += 1
        return scalars
