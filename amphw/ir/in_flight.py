"""What the interpreter keeps of messages, firings and instances until they are done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from amphw.ir.device import Direction, Mode, Report
from amphw.ir.instance import Instance
from amphw.ir.primitives import RowContext

State = tuple[int, ...]
Firing = tuple[str, int, State]  # (node, slot, firing state)
Probe = Callable[[Direction, Firing, Sequence[np.ndarray]], None]
"""(direction, firing, values) of a node with a program: its outputs (FORWARD), its operands' gradients
(BACKWARD)."""


@dataclass(frozen=True)
class Message:
    """One message. Forward: to (node, in-port); backward: to (node, out-port) of the node that emitted it."""

    direction: Direction
    node: str
    port: str
    slot: int
    state: State
    payload: np.ndarray = field(compare=False)

    @property
    def key(self) -> tuple[str, str, str, int, State]:
        return self.direction.value, self.node, self.port, self.slot, self.state


@dataclass
class Pending:
    """Operands that have arrived for a firing: port -> position -> (message state, payload)."""

    operands: dict[str, dict[int, tuple[State, np.ndarray]]] = field(default_factory=dict)


@dataclass
class Fired:
    """What a firing keeps until its gradients are back."""

    operands: list[tuple[str, State, int]]  # (in-port, message state, rows), in operand order
    context: RowContext
    ints: list[np.ndarray]
    residuals: list[np.ndarray]
    outputs: list[np.ndarray]
    version: int
    expected: dict[tuple[str, State], tuple[int, int]] = field(default_factory=dict)  # -> (emit number, copy)
    gradients: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)


@dataclass
class Active:
    """An instance in flight: messages still out, and what its sinks said by (node, name) so far."""

    instance: Instance
    mode: Mode
    report: Report
    outstanding: int = 0
    parts: dict[tuple[str, str], list[tuple[State, np.ndarray]]] = field(default_factory=dict)
