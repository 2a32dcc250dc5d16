"""The reference executor: the living definition of what a graph means.

One thread delivers one message at a time, in any legal order: first come first served, last come first
served, at random, or as a log says. It is slow and obviously right; every other executor is compared with it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from amphw.ir.device import Capabilities, DeviceOptions, Mode, Report, Statistics
from amphw.ir.errors import AmphwError, ExecutionError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.interpreter import Interpreter, Message
from amphw.ir.update import NodeParameters, UpdateRule, no_parameters


class ReferenceDevice(Interpreter):
    """The interpreter behind the device protocol.

    order: "fifo", "lifo" or "random" (seeded by the options). dtype: of parameters and payloads. replay: the
    `log` of an earlier run, to deliver the same messages in the same order.
    """

    def __init__(self, order: str = "fifo", dtype: type = np.float32, replay: Sequence[Any] | None = None):
        super().__init__(dtype)
        self.order = order
        self._open = False
        self.replay = deque(replay) if replay is not None else None

    def capabilities(self) -> Capabilities:
        return Capabilities("reference", "reference", notes="numpy")

    def load(self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions) -> None:
        self.open(graph, rules, options)
        self.rng = random.Random(options.seed)
        self.log: list[Any] = []
        self._open = True

    # --- the protocol -----------------------------------------------------------------------------

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        if not self._open:
            raise ExecutionError("the device is closed; load a graph first")
        self.pump(slot, generation, instance, mode)

    def poll(self, timeout: float = 0.0) -> list[Report]:
        while self.queue and not self.done:
            self.step()
        done, self.done = self.done, []
        return done

    def drain(self) -> list[Report]:
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
            self.apply_update(name)

    def parameters(self) -> dict[str, NodeParameters]:
        return self.params

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
        message = self._next()
        if self.options.log:
            self.log.append(message.key)
        self.deliver(message)

    def _next(self) -> Message:
        if self.replay is not None:
            wanted = self.replay.popleft()
            for i, m in enumerate(self.queue):
                if m.key == wanted:
                    del self.queue[i]
                    return m
            raise ExecutionError(f"replay: the log delivers {wanted}, but no such message is waiting")
        if self.order == "lifo":
            return self.queue.pop()
        if self.order == "random":
            i = self.rng.randrange(len(self.queue))
            self.queue.rotate(-i)
        return self.queue.popleft()

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
