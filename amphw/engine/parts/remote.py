"""A part in a process of its own: what dies or hangs there takes nothing else with it.

Calls and frames go over one ring, answers and results come back over another. The process also says every
second that it is alive, so that one that is stopped is found out whatever it was asked.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from amphw.engine.lowering.lower import Lowered, Unit
from amphw.engine.parts.costs import NodeTime, TellsTime
from amphw.engine.parts.part import (
    ModelsLink,
    Part,
    PartFrame,
    PartResult,
    RefusesTogether,
    ShowsLife,
    joins,
)
from amphw.engine.parts.ring import LinkError, Ring, semaphore
from amphw.ir.device import SILENCE, Capabilities, DeviceOptions, LinkRate, LinkUse, Mode, Statistics
from amphw.ir.errors import AmphwError, DeviceAbsentError, DeviceLostError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.units import written
from amphw.ir.update import NodeParameters, UpdateRule

CALL, ANSWER, FAILED, FRAME, RESULT, ALIVE = range(6)
"""Kinds of packets."""

CAPACITY = 8 << 20
"""Bytes of a ring for frames and instances. Containers often have 64 MiB of shared memory in all."""

BYTES = 40
"""Of a ring for each number in the parameters, which cross in one packet: value, gradient, the optimiser's
numbers, as float64."""

BEAT = 1.0
"""Seconds between two signs of life, which say how many packets an idle process has received."""

MISSED = 3
"""Signs of life in a row by which an idle process has not received what was sent: that is lost."""

LONG = frozenset({"load", "parameters", "restore"})
"""What may take as long as it likes while the process is alive: compiling, reading memories over a link."""

LONGEST = 3600.0

LOCAL = frozenset({"trace"})
"""Settings that belong to the process they are made in."""


class RemotePart:
    """make: called in the new process, it gives the part; also called here, for what needs no process.

    patience: seconds without a packet after which the process counts as lost.
    """

    def __init__(self, make: Callable[[], Part], patience: float = SILENCE):
        self.make, self.patience = make, patience
        self.here = make()
        self.depth, self.joins = self.here.depth, joins(self.here)
        self.heard = 0.0
        """See `ShowsLife`: as its process tells."""
        self.process: Any = None
        self._rate: LinkRate | None = None

    def capabilities(self) -> Capabilities:
        return self.here.capabilities()

    def refused(self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule]) -> str:
        return self.here.refused(graph, unit, rules)

    def node_time(
        self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule], rows: Mapping[str, float]
    ) -> NodeTime | None:
        """See `TellsTime`."""
        return self.here.node_time(graph, unit, rules, rows) if isinstance(self.here, TellsTime) else None

    def refused_together(self, graph: Graph, units: Sequence[Unit], rules: Mapping[str, UpdateRule]) -> str:
        """See `RefusesTogether`."""
        here = self.here
        return here.refused_together(graph, units, rules) if isinstance(here, RefusesTogether) else ""

    def load(
        self,
        graph: Graph,
        lowered: Lowered,
        units: Sequence[Unit],
        rules: Mapping[str, UpdateRule],
        options: DeviceOptions,
    ) -> None:
        self.close()
        self.patience = float(options.settings.get("silence", self.patience))
        context = multiprocessing.get_context("spawn")
        own = [spec for u in units if u.owns for spec in graph.nodes[u.name].params]
        capacity = CAPACITY + BYTES * sum(math.prod(spec.shape) for spec in own)
        starts = [spec.values for node in graph.nodes.values() for spec in node.params]
        self._to = _ring(context, capacity + sum(v.nbytes for v in starts if v is not None))
        try:
            self._back = _ring(context, capacity)
        except DeviceAbsentError:
            self._to.close()
            raise
        ends = (self._to.name, self._to.filled), (self._back.name, self._back.filled)
        self.process = context.Process(target=_serve, args=(self.make, os.getpid(), *ends), daemon=True)
        self.process.start()
        self._done: list[PartResult] = []
        self._heard, self._starting, self._told = time.perf_counter(), True, False
        self._missed = 0
        self._said = 0.0  # when the last packet was sent
        self._shown: dict[str, NodeParameters] | None = None
        kept = {k: v for k, v in options.settings.items() if k not in LOCAL}
        numbers = [u.index for u in units]
        try:
            if self._rate is not None:
                self._call("state_link", self._rate)
            given = graph, lowered, numbers, dict(rules), replace(options, settings=kept)
            self.depth = self._call("load", *given)
        except BaseException:
            self.close()
            raise

    # --- packets ----------------------------------------------------------------------------------

    def _send(self, kind: int, content: Any) -> None:
        try:
            self._to.send(kind, pickle.dumps(content, 5), self.patience)
        except LinkError as error:
            raise DeviceLostError(f"its process {self.process.pid}: {error}") from error
        self._said, self._missed = time.monotonic(), 0

    def _hear(self, timeout: float) -> tuple[int, Any] | None:
        """The next packet that is no sign of life. DeviceLostError where the process is gone or silent."""
        end = time.perf_counter() + timeout
        while True:
            try:
                found = self._back.receive(max(0.0, min(end - time.perf_counter(), BEAT)))
            except LinkError as error:
                raise DeviceLostError(f"its process {self.process.pid}: {error}") from error
            now = time.perf_counter()
            if found is not None:
                self._heard, self._starting = now, False
                kind, content = found[0], pickle.loads(found[1])
                if kind != ALIVE:
                    return kind, content
                received, at, heard = content
                self.heard = max(self.heard, heard)
                self._check_received(received, at)
            elif not self.process.is_alive():
                raise DeviceLostError(
                    f"its process {self.process.pid} has ended (exit code {self.process.exitcode})"
                )
            self._check_silence(now - self._heard)
            if now >= end:
                return None

    def _check_received(self, received: int | None, at: float) -> None:
        """Nothing else may follow a lost packet and so tell that there was one.

        at: when that was received, since signs of life wait in the ring until the host listens.
        """
        missed = received is not None and received < self._to.sent and at > self._said
        self._missed = self._missed + 1 if missed else 0
        if self._missed == MISSED:
            raise DeviceLostError(
                f"its process {self.process.pid} waits and has received {received:,} of {self._to.sent:,} "
                "packets: some are lost"
            )

    def _check_silence(self, silent: float) -> None:
        """A new process is given time; that it takes long is said."""
        if silent > (self.patience + STARTING if self._starting else self.patience):
            raise DeviceLostError(
                f"its process {self.process.pid} has given no sign of life for {silent:.0f} s"
            )
        if self._starting and silent > self.patience and not self._told:
            self._told = True
            warnings.warn(
                f"the process {self.process.pid} of the device {self.capabilities().name} has said nothing "
                f"since it was started {silent:.0f} s ago; it counts as lost after another {STARTING:.0f} s",
                RuntimeWarning,
                stacklevel=2,
            )

    def _call(self, method: str, *arguments: Any) -> Any:
        self._send(CALL, (method, arguments))
        end = time.perf_counter() + (LONGEST if method in LONG else self.patience)
        while True:
            found = self._hear(BEAT)
            if found is None and time.perf_counter() < end:
                continue
            if found is None:
                raise DeviceLostError(f"its process {self.process.pid} has not answered '{method}'")
            kind, content = found
            if kind == RESULT:
                self._done.append(content)
            elif kind == FAILED:
                raise content
            else:
                return content

    # --- what a part does -------------------------------------------------------------------------

    def begin(self, slot: int, generation: int, instance: Instance, mode: Mode) -> bool:
        self._push()
        return bool(self._call("begin", slot, generation, instance, mode))

    def end(self, slot: int) -> None:
        self._call("end", slot)

    def start(self, frame: PartFrame) -> None:
        self._send(FRAME, frame)

    def finished(self, timeout: float) -> list[PartResult]:
        end = time.perf_counter() + timeout
        while not self._done:
            found = self._hear(end - time.perf_counter())
            if found is None:
                break
            if found[0] == FAILED:
                raise found[1]
            self._done.append(found[1])
        done, self._done = self._done, []
        return done

    def update(self, nodes: Sequence[str]) -> None:
        self._push()
        self._call("update", nodes)

    def parameters(self) -> dict[str, NodeParameters]:
        if self._shown is None:
            self._shown = self._call("parameters")
        return self._shown

    def _push(self) -> None:
        """What the host has been shown it may have changed."""
        if self._shown is not None:
            self._call("restore", self._shown)
            self._shown = None

    def statistics(self) -> Statistics:
        found: Statistics = self._call("statistics")
        return found

    def models_link(self) -> bool:
        """See `ModelsLink`: what it stands for does."""
        return isinstance(self.here, ModelsLink) and self.here.models_link()

    def state_link(self, rate: LinkRate) -> None:
        assert isinstance(self.here, ModelsLink)
        self._rate = rate
        self.here.state_link(rate)

    def link_use(self) -> LinkUse:
        found: LinkUse = self._call("link_use")
        return found

    def close(self) -> None:
        """The parameters that were last shown can still be read."""
        if self.process is None:
            return
        self.process.kill()
        self.process.join()
        self.process = None
        self._to.close()
        self._back.close()


def _ring(context: Any, capacity: int) -> Ring:
    try:
        return Ring(semaphore(context), capacity)
    except OSError as error:
        raise DeviceAbsentError(
            f"{written(capacity, 'B')} of shared memory for its process cannot be had ({error.strerror}): "
            "give the machine more, as with --shm-size for a container, or have the device without a process"
        ) from error


STARTING = 60.0
"""Seconds that a new process is given until its first packet: it imports the backend."""

# --- in the other process ---------------------------------------------------------------------------------

End = tuple[str, Any]
"""Name and semaphore of a ring."""


class _Server:
    """Serves one part until it is told to end, or nobody is there to serve."""

    def __init__(self, make: Callable[[], Part], parent: int, to: End, back: End):
        self.make = make
        self._in, self._out = Ring(to[1], name=to[0]), Ring(back[1], name=back[0])
        self._lock = threading.Lock()  # one packet at a time
        self._idle = False
        self._parent = parent
        self._part: Part | None = None

    def run(self) -> None:
        threading.Thread(target=self._beat, daemon=True).start()
        try:
            self._part = part = self.make()
            owed = 0
        except Exception as error:  # in answer to the first call
            self._send(FAILED, _told(error))
            return
        while os.getppid() == self._parent:
            self._idle = not owed
            found = self._in.receive(0.0 if owed else BEAT)
            self._idle = False
            try:
                if found is not None and found[0] == FRAME:
                    part.start(pickle.loads(found[1]))
                    owed += 1
                elif found is not None:
                    method, arguments = pickle.loads(found[1])
                    self._send(ANSWER, self._answer(part, method, arguments))
                if owed:
                    for result in part.finished(0.0 if found is not None else LOOK):
                        owed -= 1
                        self._send(RESULT, result)
            except Exception as error:
                self._send(FAILED, _told(error))

    def _answer(self, part: Part, method: str, arguments: tuple[Any, ...]) -> Any:
        if method == "load":
            graph, lowered, numbers, rules, options = arguments
            part.load(graph, lowered, [lowered.units[n] for n in numbers], rules, options)
            return part.depth
        if method == "restore":
            for node, own in part.parameters().items():
                own.become(arguments[0][node])
            return None
        return getattr(part, method)(*arguments)

    def _send(self, kind: int, content: Any) -> None:
        with self._lock:
            self._out.send(kind, pickle.dumps(content, 5), 1e9)

    def _beat(self) -> None:
        while True:
            # The system's clock, which all processes have in common.
            heard = self._part.heard if isinstance(self._part, ShowsLife) else 0.0
            self._send(ALIVE, (self._in.received if self._idle else None, time.monotonic(), heard))
            time.sleep(BEAT)


LOOK = 0.002
"""Seconds that a part is left to work before its process looks for calls."""


def _told(error: Exception) -> Exception:
    """As it may cross over: some errors cannot be taken apart and put together again."""
    try:
        return pickle.loads(pickle.dumps(error))  # type: ignore[no-any-return]
    except Exception:
        return AmphwError(str(error)) if isinstance(error, AmphwError) else RuntimeError(repr(error))


def _serve(make: Callable[[], Part], parent: int, to: End, back: End) -> None:
    # One thread computes here; a pool of BLAS's own would fight the engine's workers for the cores.
    threadpool_limits(limits=1)
    try:
        _Server(make, parent, to, back).run()
    except LinkError:
        os._exit(3)  # there is nobody to tell
