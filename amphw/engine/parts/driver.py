"""A thread that takes a part's frames from the engine, and brings back what becomes of them."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from amphw.engine import faults
from amphw.engine.lowering.lower import Lowered
from amphw.engine.parts.part import ModelsLink, Part, PartFrame, PartResult, ShowsLife, joins
from amphw.engine.policy import BACKWARD, KINDS
from amphw.ir.device import LinkUse, Mode, Statistics
from amphw.ir.errors import AmphwError, DeviceLostError
from amphw.ir.instance import Instance
from amphw.ir.update import NodeParameters

NAP = 0.05
"""Seconds after which a thread without work looks whether the device is closing."""

LETTING_GO = 1.0
"""Seconds that a lost part is given to return."""

SHOWN = 4
"""Frames that are described, at most."""

LOOK = 0.002
"""Seconds after which a thread whose part is at work looks for more frames."""

Answer = TypeVar("Answer")


class PartDriver:
    """`part` as worker number `worker` of `plane`. The host's calls and the thread's exclude each other.

    patience: seconds without a sign of a part that owes something after which it counts as lost.
    """

    def __init__(
        self, plane: Any, lowered: Lowered, worker: int, part: Part, label: str, patience: float
    ) -> None:
        self.patience = patience
        self.plane, self.lowered, self.worker, self.part, self.label = plane, lowered, worker, part, label
        self.spaces = [[name for name, _ in u.behaviour.spaces] for u in lowered.units]
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.joins = joins(part)
        self._alive = part if isinstance(part, ShowsLife) else None
        self._carried = [0, 0]
        self.lost = ""
        """Why the part is not there any more."""
        self._begun: dict[int, tuple[float, PartFrame]] = {}
        self._news = time.perf_counter()  # when a frame was last done, or the first one given
        self._thread = threading.Thread(target=self._work, name=f"amphw-{label}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._stop.is_set() and not self.plane.failed:
                if not self._step() and not self._begun:
                    self.plane.wait(self.worker, NAP)
        except DeviceLostError as error:
            self.lose(str(error))
        except BaseException as error:  # whatever it is, the host must hear of it rather than wait forever
            self.plane.fail(error)

    def lose(self, why: str) -> None:
        """Nothing more is to be expected of the part: the run ends."""
        self.lost = why
        self.plane.fail(DeviceLostError(f"{self.label}: {why}"))

    def _step(self) -> bool:
        """Whether there was anything to do."""
        took = False
        while len(self._begun) < self.part.depth and (frame := self.hand_out()) is not None:
            took = True
            self.give(frame)
        if not self._begun:
            return took
        with self._lock:
            done = _guarded(self.part.finished, LOOK)
        for result in done:
            self.bring_back(result)
        return took or bool(done)

    def hand_out(self) -> PartFrame | None:
        return self.framed(self.plane.engine.hand_out(self.worker))

    def framed(self, found: tuple[Any, ...] | None) -> PartFrame | None:
        """A frame as the engine describes it; None where it has none."""
        if found is None:
            return None
        number, unit, kind, slots, firings, rows, *others = found
        named = dict(zip(self.spaces[unit], rows, strict=True))
        return PartFrame(number, unit, kind, slots, firings, named, *others)

    def give(self, frame: PartFrame) -> None:
        now = time.perf_counter()
        self._news = self._news if self._begun else now
        self._begun[frame.number] = now, frame
        if not self.joins:
            self._carried[0] += sum(a.nbytes for a in frame.arrays if a is not None)
        with self._lock:
            _guarded(self.part.start, frame)

    def bring_back(self, result: PartResult) -> None:
        engine = self.plane.engine
        if result.number not in self._begun:
            raise DeviceLostError(f"it gives back frame {result.number}, which it does not have")
        begun, frame = self._begun.pop(result.number)
        self._check(frame, result)
        if not self.joins:
            self._carried[1] += sum(a.nbytes for a in result.arrays if a is not None)
        self._news = time.perf_counter()
        engine.bring_back(result.number, list(result.arrays), list(result.decided))
        engine.handed_back(result.number, begun * 1e6, time.perf_counter() - begun)

    def _check(self, frame: PartFrame, result: PartResult) -> None:
        """The engine copies what it is given: it must be as much as the frame has rows."""
        unit = self.lowered.units[frame.unit]
        program = unit.behaviour.program
        assert program is not None
        if frame.kind == BACKWARD:
            wanted = [(o.space, o.width, o.needs_gradient) for o in unit.operands]
        else:
            wanted = [(t.space, t.width, t.kind == "float") for t in program.outputs_types]
        right = len(result.arrays) == len(wanted)
        for k, (array, (space, width, needed)) in enumerate(zip(result.arrays, wanted, strict=False)):
            if array is None:
                right = right and not (needed and (not self.joins or frame.leaves[k]))
            elif needed:
                right = right and array.shape == (frame.totals[space], width)
                right = right and array.dtype == np.float32
        fields = len(unit.behaviour.decides) if frame.kind != BACKWARD else 0
        right = right and len(result.decided) == fields
        right = right and all(len(d) == len(frame.slots) and d.dtype == np.int64 for d in result.decided)
        if not right:
            shapes = [None if a is None else (a.shape, str(a.dtype)) for a in result.arrays]
            raise DeviceLostError(
                f"frame {frame.number} of node '{unit.name}' ({KINDS[frame.kind]}, {len(frame.slots)} "
                f"firings) comes back as {shapes}, which is not what the node makes"
            )

    def carried(self) -> tuple[int, int]:
        """Bytes of the messages that crossed over, to the part and back."""
        if self.joins:
            found: dict[int, tuple[int, int]] = self.plane.engine.crossed()
            return found.get(self.worker, (0, 0))
        return self._carried[0], self._carried[1]

    def watch(self) -> None:
        """Give the part up if it owes something and has long given nothing back."""
        if not self.lost and (why := self.overdue(self.patience)):
            self.lose(why)

    def overdue(self, seconds: float) -> str:
        """What the part owes, if it has given no sign of life for so long; empty otherwise."""
        owed = dict(self._begun)
        now = time.perf_counter()
        silent = now - (max(self._news, self._alive.heard) if self._alive is not None else self._news)
        if not owed or silent < seconds:
            return ""
        lines = [f"has given nothing back for {silent:.1f} s; it owes {len(owed)} frame(s):"]
        for begun, frame in list(owed.values())[:SHOWN]:
            unit = self.lowered.units[frame.unit]
            slot, firing = int(frame.slots[0]), int(frame.firings[0])
            held = self.plane.instance(slot)
            state = faults.state_of(unit, held, firing) if held is not None else f"number {firing}"
            number = held.number if held is not None else "?"
            lines.append(
                f"  node '{unit.name}' {KINDS[frame.kind]}, {len(frame.slots)} firing(s), the first of "
                f"instance {number} (slot {slot}), firing {state}, for {now - begun:.1f} s"
            )
        return "\n".join(lines)

    # --- the host's side --------------------------------------------------------------------------

    def _ask(self, call: Callable[..., Answer], *arguments: Any) -> Answer:
        """Call the part, which is the host's meanwhile. DeviceLostError where its thread does not let go."""
        if self.lost:
            raise DeviceLostError(f"{self.label}: {self.lost}")
        if not self._lock.acquire(timeout=self.patience):
            self.lose(self.overdue(0.0) or f"has not returned from a call for {self.patience} s")
            raise DeviceLostError(f"{self.label}: {self.lost}")
        try:
            return _guarded(call, *arguments)
        except DeviceLostError as error:
            self.lose(str(error))
            raise DeviceLostError(f"{self.label}: {error}") from error
        finally:
            self._lock.release()

    def begin(self, slot: int, generation: int, instance: Instance, mode: Mode) -> bool:
        return self._ask(self.part.begin, slot, generation, instance, mode)

    def end(self, slot: int) -> None:
        self._ask(self.part.end, slot)

    def update(self, nodes: Sequence[str]) -> None:
        self._ask(self.part.update, nodes)

    def parameters(self) -> dict[str, NodeParameters]:
        return self._ask(self.part.parameters)

    def statistics(self) -> Statistics:
        return Statistics() if self.lost else self._ask(self.part.statistics)

    def link_use(self) -> LinkUse | None:
        """None: its link is not modelled, or it is lost."""
        if self.lost or not isinstance(self.part, ModelsLink):
            return None
        return self._ask(self.part.link_use)

    def stop(self) -> None:
        """After the frame that it is at."""
        self._stop.set()

    def close(self) -> None:
        """A part that is lost may never let go of its thread, which then ends with the process."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(LETTING_GO if self.lost else self.patience)
        if not self._thread.is_alive():
            self.part.close()


def _guarded(call: Callable[..., Answer], *arguments: Any) -> Answer:
    """Call a part, whose own mistakes are a loss of the device."""
    try:
        return call(*arguments)
    except AmphwError:
        raise
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise DeviceLostError(
            f"it failed with {type(error).__name__}: {error} (in {at.name}, {at.filename}:{at.lineno})"
        ) from error
