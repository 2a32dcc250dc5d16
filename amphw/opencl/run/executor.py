"""One OpenCL device at work: its programs, and a queue in which frames run one behind the other.

The queue keeps the order in which frames were given to it. So whatever reads a frame's results on the same
device may be given to the queue before that frame has run: nobody waits, and the host is free to form the
next frames. Only what the host itself reads (losses, decisions), and what goes to another device, waits for
its event.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from amphw.engine.lowering.lower import Unit
from amphw.engine.parts.arena import Arena
from amphw.engine.parts.executor import Running
from amphw.engine.policy import BACKWARD, FORWARD, INFER, KINDS
from amphw.engine.tiles.code import TiledUnit
from amphw.ir.config_fields import picked
from amphw.ir.errors import ExecutionError, NonFiniteError
from amphw.ir.update import NodeParameters
from amphw.opencl import abi
from amphw.opencl.abi import Kernel
from amphw.opencl.codegen import sums
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.prelude import prelude
from amphw.opencl.codegen.unit_program import unit_program
from amphw.opencl.codegen.variants import Tune, untuned
from amphw.opencl.options import OpenCLOptions
from amphw.opencl.platform.lost import is_driver_error, lost
from amphw.opencl.platform.platforms import Found, default_form
from amphw.opencl.run.build import Launch, Profile, built, place_setter
from amphw.opencl.run.memory import DeviceArena
from amphw.opencl.run.parameters import UnitParameters
from amphw.opencl.tuning import Tuner, height_class


class Executor:
    """A device with the units that it runs; see `amphw.engine.parts.executor.Executor`.

    label: its name in a run with others; empty: it is alone. settings: depth, zero_copy (whether it works in
    the host's memory; default: where it can), profile (whether to measure how long kernels take).
    """

    def __init__(
        self,
        worker: int,
        label: str,
        found: Found,
        arena: Arena,
        form: Form,
        tune: Tune,
        settings: Mapping[str, Any],
        units: Sequence[tuple[Unit, TiledUnit]],
        params: dict[str, NodeParameters],
    ):
        import pyopencl as cl

        self.cl, self.worker, self.label, self.found, self.form = cl, worker, label, found, form
        self.depth = picked(OpenCLOptions, settings).depth
        self.context = cl.Context([found.handle])
        profile, profiling = settings.get("profile"), cl.command_queue_properties.PROFILING_ENABLE
        self.queue = cl.CommandQueue(self.context, properties=profiling if profile else 0)
        self.profile: Profile | None = [] if profile else None
        shared = bool(settings.get("zero_copy", found.unified and found.kind == "cpu"))
        self.memory = DeviceArena(cl, self.context, self.queue, arena, shared)
        self.running: list[Running] = []
        self.busy_until = 0.0
        self.parameters: dict[int, UnitParameters] = {}
        # By unit and direction, for the classes of heights: all phases in one launch, or None where they are
        # launched one by one, in their order.
        self._whole: dict[tuple[int, int], list[Launch | None]] = {}
        self._frames: dict[tuple[int, int], list[tuple[Launch, ...]]] = {}
        self._launched: Counter[tuple[int, int]] = Counter()
        self._ran: Counter[tuple[int, int]] = Counter()
        self._faults: dict[int, tuple[Any, np.ndarray]] = {}
        self._units = {unit.index: unit for unit, _ in units}
        self.largest_gradients: dict[str, list[float]] = {}
        """By node, of its last updates, as they were last read."""
        for unit, tiled in units:
            self._add(unit, tiled, params.get(unit.name), tune)
        program = built(cl, self.context, found, "sums of gradients", prelude(form) + sums.sum_text(form))
        self._sum = cl.Kernel(program, sums.NAME)
        self._sum.set_arg(0, self.memory.buffer)
        self._set_sum = place_setter(self._sum, 1)

    def _add(self, unit: Unit, tiled: TiledUnit, params: NodeParameters | None, tune: Tune) -> None:
        """Build a unit's kernels and make its buffers."""
        cl = self.cl
        rule = params.rule if params is not None else None
        made = unit_program(unit, tiled, rule, self.form, tune, self.found.name)
        program = unit.behaviour.program
        assert program is not None
        faults = np.zeros(abi.BAD_GRADIENT + len(program.params) + abi.TURNS, np.int32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffer = cl.Buffer(self.context, flags, hostbuf=faults)
        self._faults[unit.index] = buffer, faults
        built_program = built(cl, self.context, self.found, unit.name, made.text)
        buffers: dict[str, Any] = {}
        if rule is not None and made.parameters is not None:
            values = UnitParameters(
                cl, self.context, self.queue, self.memory, unit, tiled, rule, made.parameters
            )
            values.use(built_program, buffer, self.profile)
            buffers = values.buffers
            self.parameters[unit.index] = values
        known: dict[str, Launch] = {}

        def launch(kernel: Kernel) -> Launch:
            if kernel.name not in known:
                known[kernel.name] = Launch(
                    cl, built_program, kernel, self.memory.buffer, buffer, buffers, self.profile
                )
            return known[kernel.name]

        for kind, direction in ((FORWARD, "forward"), (INFER, "inference"), (BACKWARD, "backward")):
            whole = made.whole[direction]
            self._whole[unit.index, kind] = [launch(k) if k is not None else None for k in whole]
            self._frames[unit.index, kind] = [
                tuple(launch(k) for k in variants)
                for variants in (made.frames[direction] if None in whole else ())
            ]

    # --- frames -----------------------------------------------------------------------------------

    def runs(self, unit: int) -> bool:
        return (unit, FORWARD) in self._frames

    def run(self, job: tuple[Any, ...], fetched: Sequence[tuple[int, int]] = ()) -> Running:
        """Put a frame into the queue. job: as the engine's `take` gives it. fetched: (place, words) that
        come to the host's view behind it."""
        number, unit, kind, place, words, rows, messages, to_sum, incoming = job
        began = time.perf_counter()
        self.memory.upload(place, words)
        for at, n in incoming:
            self.memory.upload(at, n)
        queue, enqueue = self.queue, self.cl.enqueue_nd_range_kernel
        event, launched = None, 0
        for at, n, _ in to_sum:
            if n:
                self._set_sum(at)
                launched += 1
                event = enqueue(queue, self._sum, (n * self.form.lanes,), (self.form.lanes,))
        whole = self._whole[unit, kind][height_class(max(rows))]
        if whole is not None:
            launches = [whole]
        else:
            launches = [v[height_class(rows[v[0].kernel.space])] for v in self._frames[unit, kind]]
        for launch in launches:
            if (entered := launch(queue, place, rows, messages)) is not None:
                event, launched = entered, launched + 1
        self._ran[unit, kind] += 1
        self._launched[unit, kind] += launched
        for at, n in fetched:
            event = self.memory.fetch(at, n) or event
        return self.note(Running(number, event, began, unit, kind, rows[0]))

    def note(self, running: Running) -> Running:
        """Keep an eye on work in the queue; without an event of its own it ends as what is before does."""
        if running.event is None:
            running.event = self.cl.enqueue_marker(self.queue)
        running.sent = self.memory.sent()
        self.queue.flush()
        self.running.append(running)
        return running

    def done(self) -> list[Running]:
        """What has ended since the last call, in order."""
        out = []
        while self.running and self._ended(self.running[0].event):
            out.append(self.running.pop(0))
        return out

    def _ended(self, event: Any) -> bool:
        status = event.command_execution_status
        if status < 0:
            name = self.cl.status_code.to_string(status, "%d")
            raise self.cl.RuntimeError(f"a command ended with the error {name}")
        return bool(status == self.cl.command_execution_status.COMPLETE)

    def wait(self) -> None:
        """Until the oldest work has ended; other threads run meanwhile."""
        for oldest in self.running[:1]:  # another thread may take it from the list
            oldest.event.wait()

    def finish(self) -> None:
        self.queue.finish()

    def launches(self) -> dict[str, dict[str, dict[str, int]]]:
        found: dict[str, dict[str, dict[str, int]]] = {}
        for (unit, kind), frames in sorted(self._ran.items()):
            told = {"frames": frames, "launches": self._launched[unit, kind]}
            found.setdefault(self._units[unit].name, {})[KINDS[kind]] = told
        for unit, values in self.parameters.items():
            for what, count in zip(("gradient", "update"), values.launches, strict=True):
                found.setdefault(self._units[unit].name, {})[what] = {"launches": count}
        return found

    def kernel_times(self) -> dict[str, tuple[float, int]]:
        """Seconds in all and runs, by kernel, since the last call; empty without `profile`."""
        self.queue.finish()
        found: dict[str, tuple[float, int]] = {}
        for name, event in self.profile or ():
            seconds, runs = found.get(name, (0.0, 0))
            found[name] = seconds + (event.profile.end - event.profile.start) * 1e-9, runs + 1
        if self.profile:
            self.profile.clear()
        return found

    # --- what went wrong --------------------------------------------------------------------------

    def fault(self) -> Exception | None:
        """What a kernel has reported: a gradient that is not finite, an index outside its range. Waits."""
        self._read_faults()
        for index, (_, words) in self._faults.items():
            unit = self._units[index]
            program = unit.behaviour.program
            assert program is not None
            for k, p in enumerate(program.params):
                if words[abi.BAD_GRADIENT + k]:
                    return NonFiniteError(unit.name, "backward", f"the gradient of '{p.name}'")
            if words[abi.FAULT]:
                what = abi.FAULTS.get(int(words[abi.FAULT]), "an index")
                wrong = "is no whole number" if what == "to_int" else "is outside its range"
                return ExecutionError(
                    f"node '{unit.name}': {what}: an index that the network computed {wrong}"
                )
        return None

    def read_gradients(self) -> None:
        """Bring the largest gradients of the last updates to the host; a device that is lost says nothing."""
        with contextlib.suppress(self.cl.Error):
            self.finish()
            self._read_faults()

    def _read_faults(self) -> None:
        """Bring what kernels noted to the host, with the largest gradients of the last updates. Waits."""
        for index, (buffer, words) in self._faults.items():
            self.cl.enqueue_copy(self.queue, words, buffer)
            if index in self.parameters:
                found = self.parameters[index].largest_gradients(words)
                self.largest_gradients[self._units[index].name] = found

    def explained(self, error: BaseException) -> BaseException:
        """DeviceLostError for an error of the driver, any other as it is."""
        return lost(error, [self.found], self.memory.arena.size) if is_driver_error(error) else error

    def close(self) -> None:
        """Let go of all memory on the device, also of one that does not answer."""
        with contextlib.suppress(self.cl.Error):
            self.queue.finish()
        self.running.clear()
        self._whole.clear()
        self._frames.clear()
        held = [self.memory.close, *(buffer.release for buffer, _ in self._faults.values())]
        held += [values.release for values in self.parameters.values()]
        self._faults.clear()
        for release in held:
            with contextlib.suppress(self.cl.Error):
                release()


def chosen_form(device: Found, wanted: Form | None) -> tuple[Form, Tune]:
    """A device's form, and how its products are tuned: not at all where the form is given."""
    if wanted is not None:
        return wanted, untuned(wanted)
    base = default_form(device)
    return base, Tuner(device, base).forms
