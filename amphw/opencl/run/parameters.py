"""A node's parameters on the device that runs it: values, gradients, the optimiser's sums, and their kernels.

They stay there. The host's copy is refreshed when it is asked for, and uploaded again after the host may have
written into it. Everything runs in the device's queue behind the frames that came before, so a frame reads
one version throughout, and an update overwrites parameters in place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from amphw.engine.lowering.lower import Unit
from amphw.engine.tiles.code import PhaseKind, TiledUnit
from amphw.ir.errors import AmphwError
from amphw.ir.update import LATELY, NodeParameters, UpdateRule
from amphw.opencl import abi
from amphw.opencl.abi import Kernel
from amphw.opencl.codegen.folding import table_kernels, unfold_kernels
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.gradient import gradient_kernels
from amphw.opencl.codegen.merge import merged
from amphw.opencl.codegen.update import Tensor, parts, touched_only, update_kernels, update_scalars
from amphw.opencl.layout import Layouts, copy_layout, layouts
from amphw.opencl.run.build import Launch, Profile
from amphw.opencl.run.memory import DeviceArena

SLACK = 64
"""Floats behind an array, so that a kernel may read its last columns as a whole vector."""


def tensors_of(unit: Unit, tiled: TiledUnit, rule: UpdateRule, layouts: Layouts) -> list[Tensor]:
    """The unit's parameters as their updates see them, without its folded tables."""
    program = unit.behaviour.program
    assert program is not None
    codes = [c for c in (tiled.forward, tiled.inference, tiled.backward) if c is not None]
    products = [p for c in codes for p in c.phases if p.kind == PhaseKind.Gemm]
    multiplied = {p.param for p in products} | {f.table for f in tiled.folds}
    taken = {t.param for t in tiled.terms if t.kind == "take"}
    out = []
    for k in range(len(program.params)):
        rows = layouts[k].rows
        part = (0, rows)
        for fold in tiled.folds:
            if fold.weight == k:  # nothing is sent back to the table's rows
                part = (fold.rest, rows - fold.width)
        sparse = k in taken and k not in multiplied and touched_only(rule)
        is_transposed = any(p.param == k and p.transposed for p in products)
        out.append(Tensor(k, layouts[k], sparse, part if is_transposed else None))
    return out


class ParameterKernels:
    """The kernels of a node's updates.

    gradient: of a log job. update: of an update, in their order. unfold, refresh: what the host asks for in
    between: that the gradients of tables are part of the parameters', and copies and tables from new values.
    """

    def __init__(self, name: str, unit: Unit, tiled: TiledUnit, rule: UpdateRule, form: Form):
        assert unit.behaviour.program is not None
        self.form, self.layouts = form, layouts(tiled, unit.behaviour.program.params, form)
        self.tensors = tensors_of(unit, tiled, rule, self.layouts)
        touched = [t.number for t in self.tensors if t.touched_only]
        terms = gradient_kernels(f"{name}_term", tiled, form, self.layouts, touched)
        unfold = unfold_kernels(f"{name}_unfold", self.tensors, tiled.folds, form)
        update = update_kernels(f"{name}_update", self.tensors, rule, form)
        tables = table_kernels(f"{name}_fold", self.tensors, tiled.folds, form)
        refresh = [k for k in update if "transpose" in k.name] + tables

        def together(what: str, kernels: Sequence[Kernel]) -> list[Kernel]:
            return merged(f"{name}_{what}", kernels, f"Unit {unit.name}, {what}")

        self.gradient, self.unfold = together("gradient", terms), together("unfold", unfold)
        self.refresh = together("refresh", refresh)
        self.update = together("update", [*unfold, *update, *tables])

    @property
    def all(self) -> list[Kernel]:
        """Each kernel once."""
        every = (*self.gradient, *self.unfold, *self.refresh, *self.update)
        return list({k.name: k for k in every}.values())


class UnitParameters:
    """One unit's, on one device. `use` comes before anything runs."""

    def __init__(
        self,
        cl: Any,
        context: Any,
        queue: Any,
        memory: DeviceArena,
        unit: Unit,
        tiled: TiledUnit,
        rule: UpdateRule,
        kernels: ParameterKernels,
    ):
        self._cl, self._queue, self._memory, self._rule, self._kernels = cl, queue, memory, rule, kernels
        program = unit.behaviour.program
        assert program is not None
        self._node, self._specs = unit.name, program.params
        tensors = kernels.tensors
        folded = [Tensor(n, kernels.layouts[n]) for n in range(len(tensors), len(kernels.layouts))]
        self._tensors = tensors
        self._turn = 0
        self._state = dict(rule.row.state)
        self.lately: deque[int] = deque(maxlen=LATELY)
        """Turns of the last updates, by which `abi.TURNS` finds their largest gradients."""
        self.buffers: dict[str, Any] = {}
        for t in [*tensors, *folded]:
            arrays = [f"p{t.number}", f"g{t.number}"]
            arrays += [f"p{t.number}s{s}" for s in range(rule.slots()) if t.number < len(tensors)]
            for name in arrays:
                self._make(context, name, t.floats)
            if t.transposed is not None:
                copy = copy_layout(t.columns, t.transposed[1], kernels.form)
                self._make(context, f"p{t.number}t", copy.floats)
            if t.touched_only:
                self._make(context, f"touched{t.number}", t.rows)
            if rule.clip > 0.0:
                self._make(context, f"squares{t.number}", parts(t))

    def _make(self, context: Any, name: str, floats: int) -> None:
        zeros = np.zeros(floats + SLACK, np.float32)
        flags = self._cl.mem_flags.READ_WRITE | self._cl.mem_flags.COPY_HOST_PTR
        self.buffers[name] = self._cl.Buffer(context, flags, hostbuf=zeros)

    def use(self, program: Any, faults: Any, profile: Profile | None) -> None:
        """Take the kernels from the program that they have been built in."""

        def launches(kernels: Sequence[Kernel]) -> list[Launch]:
            return [
                Launch(self._cl, program, k, self._memory.buffer, faults, self.buffers, profile)
                for k in kernels
            ]

        made = self._kernels
        self._gradient, self._unfold = launches(made.gradient), launches(made.unfold)
        self._update, self._refresh = launches(made.update), launches(made.refresh)

    # --- in the queue -----------------------------------------------------------------------------

    def reduce(self, job: int, rows: Sequence[int]) -> Any:
        """Add a part of the log to the gradients -> the last event. job: its place; rows: by space."""
        event = None
        for launch in self._gradient:
            event = launch(self._queue, job, rows, 1) or event
        return event

    def update(self, job: int, gradient_rows: int, version: int) -> Any:
        """Make the next version of a gradient summed over so many rows -> the last event.

        job: place of `update.JOB` floats.
        """
        scalars = update_scalars(self._rule, gradient_rows, version, self._state, self._turn)
        self._memory.arena.floats[job : job + len(scalars)] = scalars
        self._memory.upload(job, len(scalars))
        self.lately.append(self._turn)
        self._turn += 1
        return self._once(self._update, job)

    @property
    def launches(self) -> tuple[int, int]:
        """Kernels launched for parts of the log, and for updates."""
        gradient, update = (sum(launch.count for launch in each) for each in (self._gradient, self._update))
        return gradient, update

    def largest_gradients(self, faults: np.ndarray) -> list[float]:
        """The largest magnitude in the gradient of each of the last updates. faults: the unit's words."""
        turns = faults[abi.BAD_GRADIENT + len(self._specs) :].view(np.float32)
        return [float(turns[turn % abi.TURNS]) for turn in self.lately]

    def _once(self, launches: Sequence[Launch], job: int = 0) -> Any:
        event = None
        for launch in launches:
            event = launch(self._queue, job, (), 1)
        return event

    # --- exchange with the host; nothing is in flight ---------------------------------------------

    def push(self, node: NodeParameters) -> None:
        """Take the host's values, gradients and optimiser's sums."""
        self._state = dict(node.state)
        for t, spec in zip(self._tensors, self._specs, strict=True):
            gradient = node.gradients[spec.name]
            for what, a in (("values", node.values[spec.name]), ("gradients", gradient)):
                if a.shape != spec.shape:
                    raise AmphwError(
                        f"node '{self._node}': {what} of '{spec.name}' have shape {a.shape}, "
                        f"expected {spec.shape}"
                    )
            self._write(f"p{t.number}", t, node.values[spec.name])
            self._write(f"g{t.number}", t, gradient)
            for s, a in enumerate(node.slots[spec.name]):
                self._write(f"p{t.number}s{s}", t, a)
            if t.touched_only:
                touched = gradient.any(axis=1).astype(np.int32)
                self._cl.enqueue_copy(self._queue, self.buffers[f"touched{t.number}"], touched)
        self._once(self._refresh)

    def fetch(self, node: NodeParameters) -> None:
        """Bring the host's copy up to date; values are new arrays."""
        self._once(self._unfold)
        values = {}
        for t, spec in zip(self._tensors, self._specs, strict=True):
            values[spec.name] = self._read(f"p{t.number}", t).reshape(spec.shape)
            node.gradients[spec.name][...] = self._read(f"g{t.number}", t).reshape(spec.shape)
            for s, a in enumerate(node.slots[spec.name]):
                a[...] = self._read(f"p{t.number}s{s}", t).reshape(spec.shape)
        node.values, node.state = values, dict(self._state)

    def _write(self, name: str, t: Tensor, a: np.ndarray) -> None:
        self._cl.enqueue_copy(self._queue, self.buffers[name], t.layout.packed(a))

    def _read(self, name: str, t: Tensor) -> np.ndarray:
        memory = np.empty(t.layout.shape, np.float32)
        self._cl.enqueue_copy(self._queue, memory, self.buffers[name])
        return t.layout.unpacked(memory)

    def release(self) -> None:
        for buffer in self.buffers.values():
            buffer.release()
