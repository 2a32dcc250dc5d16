"""A thread that takes a part's frames from the engine, and brings back what becomes of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from amphw.engine.lower import Lowered
from amphw.engine.part import Part, PartFrame, PartResult
from amphw.ir.device import Mode, Statistics
from amphw.ir.instance import Instance
from amphw.ir.update import NodeParameters

NAP = 0.05
"""Seconds after which a thread without work looks whether the device is closing."""

LOOK = 0.002
"""Seconds after which a thread whose part is at work looks for more frames."""


class PartDriver:
    """`part` as worker number `worker` of `plane`. The host's calls and the thread's exclude each other."""

    def __init__(self, plane: Any, lowered: Lowered, worker: int, part: Part, label: str):
        self.plane, self.lowered, self.worker, self.part, self.label = plane, lowered, worker, part, label
        self.spaces = [[name for name, _ in u.behaviour.spaces] for u in lowered.units]
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._begun: dict[int, float] = {}
        self._thread = threading.Thread(target=self._work, name=f"amphw-{label}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._stop.is_set() and not self.plane.failed:
                if not self._step() and not self._begun:
                    self.plane.wait(self.worker, NAP)
        except BaseException as error:  # whatever it is, the host must hear of it rather than wait forever
            self.plane.fail(error)

    def _step(self) -> bool:
        """Whether there was anything to do."""
        took = False
        while len(self._begun) < self.part.depth and (frame := self.hand_out()) is not None:
            took = True
            self._begun[frame.number] = time.perf_counter()
            with self._lock:
                self.part.start(frame)
        if not self._begun:
            return took
        with self._lock:
            done = self.part.finished(LOOK)
        for result in done:
            self.bring_back(result)
        return took or bool(done)

    def hand_out(self) -> PartFrame | None:
        found = self.plane.engine.hand_out(self.worker)
        if found is None:
            return None
        number, unit, kind, slots, firings, rows, arrays, ints = found
        named = dict(zip(self.spaces[unit], rows, strict=True))
        return PartFrame(number, unit, kind, slots, firings, named, arrays, ints)

    def bring_back(self, result: PartResult) -> None:
        engine = self.plane.engine
        begun = self._begun.pop(result.number)
        engine.bring_back(result.number, list(result.arrays), list(result.decided))
        engine.handed_back(result.number, begun * 1e6, time.perf_counter() - begun)

    # --- the host's side --------------------------------------------------------------------------

    def begin(self, slot: int, generation: int, instance: Instance, mode: Mode) -> bool:
        with self._lock:
            return self.part.begin(slot, generation, instance, mode)

    def end(self, slot: int) -> None:
        with self._lock:
            self.part.end(slot)

    def update(self, nodes: Sequence[str]) -> None:
        with self._lock:
            self.part.update(nodes)

    def parameters(self) -> dict[str, NodeParameters]:
        with self._lock:
            return self.part.parameters()

    def statistics(self) -> Statistics:
        with self._lock:
            return self.part.statistics()

    def stop(self) -> None:
        """After the frame that it is at."""
        self._stop.set()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            self.part.close()
