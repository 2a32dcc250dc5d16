"""The reference executor: the living definition of what a graph means.

One thread delivers one message at a time, in any legal order: first come first served, last come first
served, at random, or as a log says. It is slow and obviously right; every other executor is compared with it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from amphw.ir.behaviour import Behaviour
from amphw.ir.device import Capabilities, DeviceOptions, Mode, Report, Statistics
from amphw.ir.errors import AmphwError, ExecutionError
from amphw.ir.exchange import take_told, tell_all
from amphw.ir.given_order import GivenOrder
from amphw.ir.graph import Graph
from amphw.ir.in_flight import Fired, Firing, Message, State
from amphw.ir.instance import Instance
from amphw.ir.interpreter import Interpreter
from amphw.ir.reference_replay import Replay
from amphw.ir.service_log import INTERVAL, UPDATE, Event, LogEnded, ServiceLog
from amphw.ir.told import sinks
from amphw.ir.update import Applied, NodeParameters, UpdateRule, no_parameters


class ReferenceDevice(Interpreter):
    """The interpreter behind the device protocol.

    order: "fifo", "lifo" or "random" (seeded by the options). dtype: of parameters and payloads. replay: the
    log of an earlier run on any executor (`amphw.ir.service_log`), whose decisions are taken again.
    """

    def __init__(self, order: str = "fifo", dtype: type = np.float32, replay: ServiceLog | None = None):
        super().__init__(dtype)
        self.order = order
        self._open = False
        self._logged = replay
        self._unpolled: list[Report] = []  # of a replay
        self.replay: Replay | None = None

    def capabilities(self) -> Capabilities:
        return Capabilities("reference", "reference", notes="numpy")

    def load(self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions) -> None:
        if self._logged is not None:
            options = replace(options, updates="controller")  # the log has the updates, at their place
        self.open(graph, rules, options)
        self.rng = random.Random(options.seed)
        self.log: list[Event] = []
        self._frames = 0
        self.replay = Replay(self, self._logged) if self._logged is not None else None
        self._open = True

    # --- the protocol -----------------------------------------------------------------------------

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        if not self._open:
            raise ExecutionError("the device is closed; load a graph first")
        if self.replay is not None:
            self.replay.submit(slot, generation, instance, mode)
            return
        self._note("submit", instance.number, mode.value)
        self.pump(slot, generation, instance, mode)

    def poll(self, timeout: float = 0.0) -> list[Report]:
        if self.replay is not None:
            found, self._unpolled = self._unpolled + self.replay.run(), []
            if not found and self.replay.left:
                raise LogEnded(self.replay.left)
            return found
        while self.queue and not self.done:
            self.step()
        done, self.done = self.done, []
        for report in done:
            self._note("retire", report.number, report.mode.value)
        return done

    def drain(self) -> list[Report]:
        if self.replay is not None:
            reports: list[Report] = []
            while found := self.poll():
                reports += found
            return reports
        while self.queue:
            self.step()
        if self.active:
            raise ExecutionError(self._stuck())
        return self.poll()

    def planned_bytes(self, instance: Instance, mode: Mode) -> int | None:
        return None

    def update(self, nodes: Sequence[str] | None = None) -> None:
        for name in nodes if nodes is not None else self.params:
            if name not in self.params:
                raise AmphwError(no_parameters(name))
            if self.replay is None:
                self._update(name, UPDATE)
        if self.replay is not None:  # a log holds the updates, at their place among the frames: up to here
            self._unpolled += self.replay.run()

    def parameters(self) -> dict[str, NodeParameters]:
        return self.params

    def tell(self) -> bool:
        """See `Tells`."""
        tell_all(self.params)
        return True

    def told(self) -> dict[str, Applied]:
        """See `Tells`."""
        return take_told(self.params)

    def statistics(self) -> Statistics:
        out, self.stats = self.stats, Statistics(busy=[0.0])
        out.gradients = {node: list(p.lately) for node, p in self.params.items() if p.lately}
        return out

    def close(self) -> None:
        if self._open:
            self.queue.clear()
        self._open = False

    # --- scheduling: any legal order --------------------------------------------------------------

    def step(self) -> None:
        """Deliver one message."""
        self.deliver(self._next())

    def _next(self) -> Message:
        if self.order == "lifo":
            return self.queue.pop()
        if self.order == "random":
            i = self.rng.randrange(len(self.queue))
            self.queue.rotate(-i)
        return self.queue.popleft()

    # --- the log ----------------------------------------------------------------------------------

    def _note(self, *event: Any) -> None:
        if self.options.log:
            self.log.append(event)

    def _fire(
        self, firing: Firing, b: Behaviour, operands: dict[str, dict[int, tuple[State, np.ndarray]]]
    ) -> None:
        kind = "forward" if self.active[firing[1]].mode is Mode.TRAIN else "infer"
        self._note_frame(kind, firing, b)
        super()._fire(firing, b, operands)

    def _return(self, firing: Firing, b: Behaviour, record: Fired) -> None:
        self._note_frame("backward", firing, b)
        super()._return(firing, b, record)

    def _note_frame(self, kind: str, firing: Firing, b: Behaviour) -> None:
        """A frame of one firing, of a node that computes: nothing comes between its beginning and its end."""
        if b.program is None or not self.options.log:
            return
        node, slot, state = firing
        active = self.active[slot]
        self._frames += 1
        self._note("start", self._frames, node, kind, ((active.instance.number, active.mode.value, state),))
        self._note("end", self._frames)

    def _self_update(self, name: str) -> None:
        self._update(name, INTERVAL)

    def _update(self, name: str, cause: str) -> None:
        self._note("seal", name, cause)
        self.apply_update(name)
        self._note("reduced", name)

    def _stuck(self) -> str:
        lines = []
        for (node, slot, state), pending in list(self.pending.items())[:5]:
            number = self.active[slot].instance.number
            lines.append(
                f"node '{node}' waits for instance {number}, state {state}; it has {sorted(pending.operands)}"
            )
        return "nothing left to deliver, but instances are in flight: " + (
            "; ".join(lines) or "no operand is pending"
        )


def gradients_of(device: ReferenceDevice, instance: Instance) -> dict[str, dict[str, np.ndarray]]:
    """By node and name, the gradients of one instance on a device that has none, and updates nothing."""
    device.submit(0, 0, instance, Mode.TRAIN)
    device.drain()
    return {node: dict(p.gradients) for node, p in device.parameters().items()}


def outputs_of(device: ReferenceDevice, instance: Instance) -> dict[str, dict[str, np.ndarray]]:
    """By sink and name, what the sinks say of one instance in inference [rows, width]."""
    device.submit(0, 0, instance, Mode.PREDICT)
    (report,) = device.drain()
    return sinks(device.graph, GivenOrder(device.graph).of(instance, report.outputs))


def values_of(device: ReferenceDevice) -> dict[str, dict[str, np.ndarray]]:
    """By node and name, copies of a drained device's parameters."""
    return {node: {name: v.copy() for name, v in p.values.items()} for node, p in device.parameters().items()}
