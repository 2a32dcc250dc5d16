"""An OpenCL device as a part of a run on several devices: frames in, rows out.

The engine hands over complete frames; the device's kernels and its parameters are those of a run on the
device alone (`Executor`). The queue keeps the order in which frames were started, and so does everything
that depends on it: which version a frame reads, what an update comprises.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from amphw.engine.lowering.lower import Lowered, Unit
from amphw.engine.lowering.plan import firings
from amphw.engine.numbering import WORTH_REDUCING
from amphw.engine.numpy_plane.frames import count_staleness
from amphw.engine.parts.part import PartFrame, PartResult
from amphw.engine.policy import BACKWARD, FORWARD, KINDS
from amphw.engine.tiles.code import TiledUnit
from amphw.engine.tiles.tiling import tile
from amphw.ir.config_fields import picked
from amphw.ir.device import Capabilities, DeviceOptions, Mode, Statistics
from amphw.ir.errors import AmphwError, DeviceLostError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import NodeParameters, UpdateRule, initial_parameters, no_parameters
from amphw.opencl import abi
from amphw.opencl.codegen.update import JOB
from amphw.opencl.options import OpenCLOptions
from amphw.opencl.platform.lost import is_driver_error, lost, not_opened
from amphw.opencl.platform.platforms import Found, MemorySettingError, capabilities, check_process
from amphw.opencl.run.executor import Executor, Running, chosen_form
from amphw.opencl.run.frames import SLACK, UnitFrames, View, Written
from amphw.opencl.run.log import GradientLog, LogRows
from amphw.opencl.run.memory import Arena
from amphw.opencl.run.plane import arena_bytes
from amphw.opencl.run.rows import APART, Counts, Room

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _watched(method: Callable[Concatenate[OpenCLPart, _P], _R]) -> Callable[Concatenate[OpenCLPart, _P], _R]:
    """An error of the driver in mid-run is told as DeviceLostError."""

    @wraps(method)
    def watched(self: OpenCLPart, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            if not is_driver_error(error):
                raise
            raise lost(error, [self.found], self.arena.size) from error

    return watched


@dataclass
class _Begun:
    """An instance. room: of its rows; words: of a frame of all it has, and of the largest of its firings."""

    mode: Mode
    room: int
    words: tuple[int, int]


class OpenCLPart:
    """found: the device. settings of `load`: memory, depth, form, and those of `Executor`."""

    depth = OpenCLOptions.depth

    def __init__(self, found: Found):
        self.found = found
        self.params: dict[str, NodeParameters] = {}
        self.executor: Executor | None = None

    def capabilities(self) -> Capabilities:
        return capabilities(self.found)

    def refused(self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule]) -> str:
        return ""  # as a run on the device alone, it takes whatever there is

    def load(
        self,
        graph: Graph,
        lowered: Lowered,
        units: Sequence[Unit],
        rules: Mapping[str, UpdateRule],
        options: DeviceOptions,
    ) -> None:
        self.close()
        check_process()
        settings = options.settings
        self.depth = picked(OpenCLOptions, settings).depth
        self._frame_cap = int(settings.get("frame_cap", 64))
        self._self_updating = options.updates == "self"
        owners = {u.name: graph.nodes[u.name].params for u in units if u.owns}
        self.params = initial_parameters(owners, dict(rules), options.seed)
        self.lowered = lowered
        self._begun: dict[int, _Begun] = {}
        self._open: dict[int, Written] = {}  # frames whose results are still to come
        self._jobs: dict[int, tuple[int, int]] = {}  # reductions: (place, the frame that is kept for it)
        self._kept: dict[int, bool] = {}  # frames that stay for a reduction; whether their results do, too
        self._versions: dict[tuple[int, int, int], int] = {}  # of each firing's forward direction
        self._reductions = 0
        self._done: list[PartResult] = []
        self._stats = Statistics()
        self._written = True  # whether the host may have changed the parameters
        try:
            self._set_up([(u, tile(u)) for u in units], settings)
        except Exception as error:
            if not is_driver_error(error):
                raise
            raise not_opened(error, [self.found], arena_bytes([self.found], settings)) from error

    def _set_up(self, units: Sequence[tuple[Unit, TiledUnit]], settings: Mapping[str, Any]) -> None:
        self.arena = Arena(arena_bytes([self.found], settings))
        form, tune = chosen_form(self.found, settings.get("form"))
        self.executor = Executor(0, self.found, self.arena, form, tune, settings, units, self.params)
        memory, view = self.executor.memory, View(self.arena)
        codes = [c for _, t in units for c in (t.forward, t.inference, t.backward) if c is not None]
        wide = abi.rounded(max((b.width for c in codes for b in c.bases), default=0) + SLACK, 32)
        self.arena.floats[:wide], self.arena.floats[wide : 2 * wide] = 0.0, 1.0
        memory.upload(0, 2 * wide)
        self._units = {u.index: UnitFrames(u, t, view, 0, wide, memory.shared) for u, t in units}
        at, end = 2 * wide, self.arena.size // 4 - SLACK
        logging = [(u, t) for u, t in units if u.name in self.params and t.log_buffers]
        share = end // 8 // max(1, len(logging))
        self._logs: dict[int, GradientLog] = {}
        for u, t in logging:
            self._logs[u.index], at = GradientLog.at(at, share, t, self.params[u.name])
        jobs = [len(log.rows.header()) + JOB for log in self._logs.values()]
        self._spare = 2 * abi.rounded(max(jobs, default=0), APART)  # where a reduction's fits in any case
        self._frames = Room(at, (at + end) // 2)
        self._instances = Room((at + end) // 2, end)
        try:
            for u, _ in units:
                self._warm_up(u)
        except DeviceLostError as error:
            raise MemorySettingError(
                f"device.memory = {self.arena.size} bytes are too few for the nodes on {self.found}; raise it"
            ) from error
        for index, values in self.executor.parameters.items():  # what they run for the host
            values.push(self.params[self.lowered.units[index].name])
            values.fetch(self.params[self.lowered.units[index].name])
        self.executor.forget_faults()

    def _warm_up(self, unit: Unit) -> None:
        """Run every kernel on a frame of one row: what the compilers take for them counts as loading.

        Parameters are nothing after that, and not written yet.
        """
        assert self.executor is not None
        frames = self._units[unit.index]
        self._lay(0, {unit.index: Counts(1, dict.fromkeys(frames.tiled.spaces, 1))})
        for kind, code in frames.codes.items():
            if code is None:
                continue
            written = frames.write(frames.blank(kind), [1] * len(frames.tiled.spaces), self._room, None)
            for place, words in [(written.place, written.words), *written.sent]:
                self.executor.memory.upload(place, words)
            self.executor.warm_up(unit.index, kind, written.place, written.rows)
            if written.log is not None and unit.index in self._logs:
                self._reduce(unit.index, written.log, 1, True)
            self.executor.finish()
            self._collect()
            self._frames.give(written.place)
        self._instances.give(self._begun.pop(0).room)
        self._stats = Statistics()

    # --- instances --------------------------------------------------------------------------------

    @_watched
    def begin(self, slot: int, generation: int, instance: Instance, mode: Mode) -> bool:
        self._push()
        counts = {}
        for index, frames in self._units.items():
            space, rows = firings(frames.unit, instance)
            counts[index] = Counts(space.size, rows)
        return self._lay(slot, counts, mode, instance.number)

    def _lay(self, slot: int, counts: Mapping[int, Counts], mode: Mode = Mode.TRAIN, number: int = 0) -> bool:
        """Reserve what an instance's firings need -> whether there is room for it."""
        needed = [self._units[u].needed(c) for u, c in counts.items()]
        frame = max(all for all, _ in needed), max(each for _, each in needed)
        words = sum(self._units[u].kept.words(c) for u, c in counts.items()) if mode is Mode.TRAIN else 0
        # However frames are put together, there is room for one at a time.
        held = [b.words for b in self._begun.values()] + [frame]
        largest = min(sum(all for all, _ in held), self._frame_cap * max(each for _, each in held))
        room = self._instances.take(max(1, words)) if largest + self._spare <= self._frames.words else None
        if room is None:
            if self._begun:
                return False
            raise DeviceLostError(
                f"instance {number} does not fit on the device even alone: it takes {4 * (words + largest)} "
                f"bytes of the {self.arena.size} that are set aside. Raise device.memory, or make instances "
                "smaller."
            )
        self._begun[slot] = _Begun(mode, room, frame)
        if mode is Mode.TRAIN:
            for u, c in counts.items():
                room = self._units[u].kept.lay(slot, room, c)
        return True

    @_watched
    def end(self, slot: int) -> None:
        begun = self._begun.pop(slot)
        self._instances.give(begun.room)
        if begun.mode is Mode.PREDICT:
            self._check_faults()  # what is predicted from a wrong index must not reach anybody

    # --- frames -----------------------------------------------------------------------------------

    @_watched
    def start(self, frame: PartFrame) -> None:
        assert self.executor is not None
        frames, log = self._units[frame.unit], self._logs.get(frame.unit)
        if frame.kind == BACKWARD:
            self._count_staleness(frame)
            if frames.tiled.backward is None:  # no parameters here or upstream: the messages return empty
                self._done.append(PartResult(frame.number, [None] * len(frames.unit.operands)))
                return
        elif frame.kind == FORWARD and log is not None:
            for slot, firing in zip(frame.slots.tolist(), frame.firings.tolist(), strict=True):
                self._versions[frame.unit, slot, firing] = log.version
        rows, piece = [frame.totals[s] for s in frames.tiled.spaces], None
        log = log if frame.kind == BACKWARD else None
        if log is not None:
            if not log.fits(rows):
                self._reduce_logged(frame.unit, False)
            piece = log.rows if log.fits(rows) else None
        written = frames.write(frame, rows, self._room, piece)
        self._open[frame.number] = written
        for place, words in written.sent:
            self.executor.memory.upload(place, words)
        job = frame.number, frame.unit, frame.kind, written.place, written.words, rows, len(frame.slots), ()
        self.executor.run(job, False, written.fetched)
        if log is None:
            return
        due = self._self_updating and log.reduced + log.logged + rows[0] >= log.node.rule.interval
        if written.log is not None:
            self._reduce(frame.unit, written.log, rows[0], due, frame.number)
            return
        log.logged += rows[0]
        if due or log.logged >= WORTH_REDUCING:
            self._reduce_logged(frame.unit, due, frame.number if due else 0)

    def _room(self, words: int) -> int:
        """Room for a frame, or what belongs to one; waits for what is in the queue where there is none."""
        assert self.executor is not None
        while (place := self._frames.take(words)) is None:
            if not self.executor.running:
                raise DeviceLostError(
                    f"the device has no room for a frame of {4 * words} bytes. Raise device.memory, or lower "
                    "max_active_keys, device.frame_cap or device.frame_rows."
                )
            self.executor.wait()
            self._collect()
        return place

    def _count_staleness(self, frame: PartFrame) -> None:
        if (log := self._logs.get(frame.unit)) is None:
            return
        histogram = self._stats.staleness.setdefault(self.lowered.units[frame.unit].name, {})
        rows = frame.rows[self._units[frame.unit].tiled.spaces[0]]
        firings = zip(frame.slots.tolist(), frame.firings.tolist(), strict=True)
        seen = (self._versions.pop((frame.unit, *firing)) for firing in firings)
        count_staleness(histogram, log.version, seen, rows.tolist())

    @_watched
    def finished(self, timeout: float) -> list[PartResult]:
        self._collect()
        if not self._done and timeout > 0.0 and self.executor is not None:
            self.executor.wait()
            self._collect()
        done, self._done = self._done, []
        return done

    def _collect(self) -> None:
        """Take back what the queue is done with."""
        assert self.executor is not None
        for running in self.executor.done():
            number = running.number
            if number > 0:
                waits = self._kept.get(number)
                if not waits:
                    self._done.append(self._result(number))
                if waits is None:
                    self._frames.give(self._open.pop(number).place)
                continue
            place, number = self._jobs.pop(number)
            self._frames.give(place)
            if number:
                if self._kept.pop(number):
                    self._done.append(self._result(number))
                self._frames.give(self._open.pop(number).place)

    def _result(self, number: int) -> PartResult:
        written = self._open[number]
        return self._units[written.frame.unit].result(written)

    # --- parameters -------------------------------------------------------------------------------

    def _reduce(self, unit: int, piece: LogRows, rows: int, due: bool, frame: int = 0) -> None:
        """Add a piece of the log, of so many gradient rows, to the gradients; if it is due, update.

        frame: the one that holds the piece, or is given back only after the update.
        """
        assert self.executor is not None
        log, header = self._logs[unit], piece.header()
        if frame:
            self._kept[frame] = due  # before anything is waited for, which may be its end
        values, memory, began = self.executor.parameters[unit], self.executor.memory, time.perf_counter()
        place = self._room(len(header) + JOB)
        self.arena.words[place : place + len(header)] = header
        memory.upload(place, len(header))
        event = values.reduce(place, piece.rows)
        log.reduced += rows
        if due and log.reduced:
            event = values.update(place + len(header), log.reduced, log.version)
            log.version, log.reduced = log.version + 1, 0
            self._stats.updates += 1
        self._reductions += 1
        self._jobs[-self._reductions] = place, frame
        self.executor.note(Running(-self._reductions, event, began, unit, len(KINDS), rows))

    def _reduce_logged(self, unit: int, due: bool, frame: int = 0) -> None:
        log = self._logs[unit]
        self._reduce(unit, log.rows, log.logged, due, frame)
        log.rows.rows, log.logged = [0] * len(log.rows.rows), 0

    @_watched
    def update(self, nodes: Sequence[str]) -> None:
        self._push()
        for name in nodes:
            if name not in self.params:
                raise AmphwError(no_parameters(name))
            if self.lowered.by_name[name] in self._logs:
                self._reduce_logged(self.lowered.by_name[name], True)
        self._settle()

    def _settle(self) -> None:
        assert self.executor is not None
        self.executor.finish()
        self._collect()
        self._check_faults()

    def _check_faults(self) -> None:
        assert self.executor is not None
        if (error := self.executor.fault()) is not None:
            raise error

    @_watched
    def parameters(self) -> dict[str, NodeParameters]:
        if self._written or self.executor is None:
            return self.params  # the host's copy is the newer one
        for unit, log in self._logs.items():
            if log.logged:
                self._reduce_logged(unit, False)
        self._settle()
        for unit, values in self.executor.parameters.items():
            node = self.params[self.lowered.units[unit].name]
            values.fetch(node)
            if unit in self._logs:
                node.version, node.rows = self._logs[unit].version, self._logs[unit].reduced
        self._written = not self._begun  # while something is in flight they are only looked at
        return self.params

    def _push(self) -> None:
        if not self._written or self.executor is None:
            return
        self._written = False
        for unit, values in self.executor.parameters.items():
            node = self.params[self.lowered.units[unit].name]
            values.push(node)
            if unit in self._logs:
                self._logs[unit].version, self._logs[unit].reduced = node.version, node.rows

    def statistics(self) -> Statistics:
        out, self._stats = self._stats, Statistics()
        if self.executor is not None:
            if not self.executor.running:
                with contextlib.suppress(self.executor.cl.Error):  # a device that is lost does not answer
                    self.executor.read_faults()
            out.gradients = dict(self.executor.largest_gradients)
        return out

    def close(self) -> None:
        """Let go of all memory; the parameters that were last asked for can still be read."""
        if self.executor is not None:
            self.executor.close()
            self.executor = None
            self.arena.forget()
