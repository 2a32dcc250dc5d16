"""A run's decisions taken again by the reference executor: what a graph means, in the order of that run.

What depends on time is which version of its parameters a node uses for a firing, and which gradients an
update sums. So messages for nodes with parameters wait until the log runs their firing; all others are
delivered at once. A log of a fused graph runs on the graph as it was written: a fused node has the name and
the states of the one whose parameters it took over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from amphw.ir.device import Direction, Mode, Report
from amphw.ir.errors import ExecutionError
from amphw.ir.in_flight import Firing, Message, State
from amphw.ir.instance import Instance
from amphw.ir.service_log import COUNTS_ENDED, SUM, ReplayDiffers, Run, ServiceLog, not_ready

if TYPE_CHECKING:
    from amphw.ir.reference import ReferenceDevice

Gradients = tuple[dict[str, np.ndarray], int]
"""Summed gradients by parameter, and over how many rows."""


class Replay:
    """Drives a reference device, which does not update itself, from a log.

    Instances are submitted as in the logged run: under the same numbers, any time before the log needs them.
    """

    def __init__(self, device: ReferenceDevice, log: ServiceLog):
        self.device, self.events = device, deque(log)
        self._offered: dict[Run, tuple[int, int, Instance, Mode]] = {}
        self._slots: dict[Run, int] = {}
        self._held: dict[tuple[Direction, Firing], list[Message]] = {}
        self._counts_ended = False
        self._open: dict[int, tuple[str, Gradients]] = {}  # frames that have not ended, where that counts
        self._sealed: dict[str, deque[Gradients]] = {}
        self._ran: dict[int, set[tuple[Direction, Firing]]] = {}  # by slot
        self._told, device.probe = device.probe, self._probe

    @property
    def left(self) -> int:
        """Instances that wait though the log has ended; 0 while it goes on."""
        return 0 if self.events else len(self._offered) + len(self._slots)

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        self._offered[instance.number, mode.value] = (slot, generation, instance, mode)

    def run(self) -> list[Report]:
        """Go on until the log needs an instance that has not been submitted, or something has retired."""
        device = self.device
        while self.events and not device.done:
            kind, *what = self.events[0]
            if kind == "submit" and tuple(what) not in self._offered:
                break
            self.events.popleft()
            self._go_by(kind, what)
            self._deliver()
        done, device.done = device.done, []
        return done

    def _go_by(self, kind: str, what: Sequence[Any]) -> None:
        events: dict[str, Callable[..., None]] = {
            "counts": self._counts,
            "submit": self._submit,
            "start": self._start,
            "end": self._end,
            "seal": self._seal,
            "reduced": self._reduced,
            "retire": self._retire,
        }
        if kind not in events:
            raise ReplayDiffers(f"an event '{kind}', of which nobody has heard")
        events[kind](*what)

    def _deliver(self) -> None:
        """All messages that need no decision; the others wait with their firing."""
        device = self.device
        while device.queue:
            message = device.queue.popleft()
            if message.node in device.params:
                key = message.direction, device.firing_of(message)
                self._held.setdefault(key, []).append(message)
            else:
                device.deliver(message)

    def _counts(self, when: str) -> None:
        self._counts_ended = ("counts", when) == COUNTS_ENDED

    def _submit(self, number: int, mode: str) -> None:
        offer = self._offered.pop((number, mode))
        self._slots[number, mode], self._ran[offer[0]] = offer[0], set()
        self.device.pump(*offer)

    def _start(self, frame: int, node: str, kind: str, firings: Sequence[tuple[int, str, State]]) -> None:
        device = self.device
        if node not in device.params:
            return  # when it runs decides nothing, and a device may have nodes that the graph has not
        direction = Direction.BACKWARD if kind == "backward" else Direction.FORWARD
        before = _taken(device, node)
        for number, mode, state in firings:
            if (number, mode) not in self._slots:
                raise ExecutionError(f"replay: the log runs instance {number, mode}, which is not in flight")
            if not self._ran_when_handed(direction, (node, self._slots[number, mode], tuple(state))):
                raise not_ready(node, kind, number, tuple(state))
        own = _taken(device, node)
        _give(device, node, before)
        if direction is Direction.BACKWARD and self._counts_ended:
            self._open[frame] = node, own
        else:
            _give(device, node, own)

    def _ran_when_handed(self, direction: Direction, firing: Firing) -> bool:
        """Hand a firing what waits for it -> whether that was all of it."""
        for message in self._held.pop((direction, firing), []):
            self.device.deliver(message)
        # A firing that sends nothing has gone backward at once.
        return (direction, firing) in self._ran[firing[1]]

    def _probe(self, direction: Direction, firing: Firing, values: Sequence[np.ndarray]) -> None:
        self._ran[firing[1]].add((direction, firing))
        if self._told is not None:
            self._told(direction, firing, values)

    def _end(self, frame: int) -> None:
        if frame in self._open:
            _give(self.device, *self._open.pop(frame))

    def _seal(self, node: str, cause: str) -> None:
        if cause != SUM:
            self._sealed.setdefault(node, deque()).append(_taken(self.device, self._owner(node)))

    def _reduced(self, node: str) -> None:
        sealed = self._sealed.get(self._owner(node))
        if not sealed:
            raise ReplayDiffers(f"an update of node '{node}' from nothing")
        later = _taken(self.device, node)
        _give(self.device, node, sealed.popleft())
        self.device.apply_update(node)
        _give(self.device, node, later)

    def _retire(self, number: int, mode: str) -> None:
        slot = self._slots.pop((number, mode), None)
        if slot is None:
            raise ExecutionError(f"replay: the log retires instance {number, mode}, which is not in flight")

    def _owner(self, node: str) -> str:
        if node not in self.device.params:
            raise ReplayDiffers(f"an update of a node '{node}'")
        return node


def _taken(device: ReferenceDevice, node: str) -> Gradients:
    """What the node has accumulated, which begins anew."""
    p = device.params[node]
    found = p.gradients, p.rows
    p.gradients, p.rows = {name: np.zeros_like(g) for name, g in p.gradients.items()}, 0
    return found


def _give(device: ReferenceDevice, node: str, found: Gradients) -> None:
    """Add to what the node has accumulated."""
    p = device.params[node]
    for name, g in found[0].items():
        p.gradients[name] += g
    p.rows += found[1]
