"""The host's side of the C++ engine: instances in, reports and errors out. Who computes, subclasses say.

The engine plans instances, routes messages and forms frames. In the CPU's data plane worker threads compute
them inside the engine; a device with kernels of its own takes them from it one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from amphw.engine import faults
from amphw.engine._native import Engine
from amphw.engine.firings import Firings
from amphw.engine.lowering.describe import (
    OWN,
    Names,
    Products,
    describe_graph,
    describe_rule,
    describe_schema,
)
from amphw.engine.lowering.lower import Lowered, choices
from amphw.engine.lowering.plan import build_plan, check_data, integers
from amphw.engine.numbering import EventType, Failure
from amphw.engine.parts.arena import MemorySettingError
from amphw.engine.policy import KINDS, ORDERS, POLICIES, PolicyTable, report_batch
from amphw.engine.tiles.tiling import tile
from amphw.ir.device import Mode, Report, Statistics
from amphw.ir.errors import DeviceLostError, ExecutionError, NonFiniteError
from amphw.ir.instance import Instance
from amphw.ir.instance_check import check_instance
from amphw.ir.service_log import CAUSES, Event, ReplayDiffers, not_ready
from amphw.ir.state import KeySpace
from amphw.ir.update import NodeParameters

_MODES = tuple(Mode)
_EVENTS = tuple(event.name.lower() for event in EventType)
PLAN_BYTES = 64 << 20
"""Plans of recent structures are kept up to this size."""


class NoRoom(Exception):
    """An instance does not fit into the memory shared with external executors, for now."""


class EnginePlane:
    """The engine on a lowered graph. settings: as of `amphw.engine.numpy_plane.NumpyPlane`.

    products: who multiplies by matrices. shared: address and bytes of the memory of external executors.
    regions: by unit that one of these computes, the worker through which it gets its frames; see
    `amphw.engine.parts.region`. outside: units that parts compute, whose parameters the engine does not know;
    see `amphw.engine.parts.part`. joining: by unit of a part that `Joins`, its worker. slept, sleepers: units
    that compute nothing, and the devices that they wait on, as `amphw.engine.parts.sleeper` describes them.
    """

    def __init__(
        self,
        lowered: Lowered,
        params: dict[str, NodeParameters],
        *,
        updates: str,
        workers: int,
        placement: Sequence[set[int]] | None,
        settings: Mapping[str, Any],
        log: list[Any] | None,
        keys: int = 1,
        products: Products = OWN,
        shared: tuple[int, int] | None = None,
        regions: Mapping[int, int] = MappingProxyType({}),
        outside: Collection[int] = (),
        joining: Mapping[int, int] = MappingProxyType({}),
        slept: Mapping[int, tuple[Any, ...]] = MappingProxyType({}),
        sleepers: Sequence[tuple[Any, ...]] = (),
    ):
        self.lowered, self.params, self.log = lowered, params, log
        self.firings = Firings(lowered)
        self.trace = settings.get("trace")
        self.names = Names(lowered.graph.schema)
        self.schema = lowered.graph.schema
        policy = POLICIES[settings.get("policy", "default")]
        self.policy = policy.table(lowered, int(settings.get("min_rows", 1)))
        sleep: Mapping[str, float] = settings.get("sleep", {})
        self.tiled = [
            tile(u, products.bf16) if u.behaviour.program is not None and u.index not in outside else None
            for u in lowered.units
        ]
        rules = [describe_rule(params[u.name].rule) if u.name in params else None for u in lowered.units]
        options: dict[str, Any] = {
            "workers": workers,
            "self_updating": updates == "self",
            "log": log is not None,
            "by_age": policy.by_age,
            "frame_cap": int(settings.get("frame_cap", 64)),
            "frame_rows": int(settings.get("frame_rows", 512)),
            "report_batch": report_batch(keys),
            "policy": _table(self.policy),
            "served": _served(lowered, workers, placement),
            "sleep": [float(sleep.get(u.name, sleep.get("*", 0.0))) for u in lowered.units],
            "trace": self.trace is not None,
            "plan_bytes": PLAN_BYTES,
            "regions": [regions.get(u.index, -1) for u in lowered.units],
            "joining": [joining.get(u.index, -1) for u in lowered.units],
            "slept": [slept.get(u.index) for u in lowered.units],
            "sleepers": list(sleepers),
            "sinks": [(u.behaviour.told, *u.behaviour.report) for u in lowered.units],
        }
        self.shared_bytes = shared[1] if shared is not None else 0
        if shared is not None:
            options["shared"] = shared
        try:
            self.engine = Engine(
                describe_graph(lowered, self.tiled, self.names, products, slept),
                describe_schema(self.schema, self.names),
                rules,
                options,
            )
        except MemoryError as error:
            if shared is None:
                raise
            raise MemorySettingError(
                f"device.memory = {shared[1]} bytes are too few for this graph's constants; raise it"
            ) from error
        self.failure: BaseException | None = None
        self._held: dict[int, tuple[Instance, tuple[np.ndarray, ...]]] = {}
        self._unpolled: list[Report] = []

    def push(self) -> None:
        """Take over what the host has written into `params`."""
        raise NotImplementedError

    # --- host side --------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Instances submitted whose reports have not been polled."""
        return len(self._held)

    def instance(self, index: int) -> Instance | None:
        """That the slot holds."""
        held = self._held.get(index)
        return held[0] if held is not None else None

    def submit(self, index: int, generation: int, instance: Instance, mode: Mode) -> None:
        self.check()
        if index in self._held:
            raise faults.occupied(index, self._held[index][0])
        self.push()
        if self.log is not None:
            self.firings.admit((instance.number, mode.value), instance)
        try:
            result = self._pump(index, generation, instance, _MODES.index(mode))
        except BaseException:
            self._held.pop(index, None)
            raise
        if result == 1:
            del self._held[index]
            self._explain(instance)
        elif result == 2:
            self.check()
        elif result == 3:
            del self._held[index]
            raise NoRoom

    def _pump(self, index: int, generation: int, instance: Instance, mode: int) -> int:
        """Have the engine read the instance as it is, or else converted. Its data are kept in flight."""
        number, attrs, tables, data = instance.number, instance.attrs, instance.tables, instance.data
        self._held[index] = (instance, tuple(data.values()))
        try:
            return int(self.engine.submit(index, generation, number, mode, attrs, tables, data))
        except (ValueError, TypeError, BufferError):  # of another form than the engine reads, or worse
            try:
                tables = _readable(tables)
                data = {name: np.ascontiguousarray(a, np.float32) for name, a in data.items()}
                self._held[index] = (instance, tuple(data.values()))
                return int(self.engine.submit(index, generation, number, mode, dict(attrs), tables, data))
            except (ValueError, TypeError, BufferError):
                check_instance(self.schema, instance)
                raise

    def _explain(self, instance: Instance) -> None:
        """The engine refused an instance: the slow checks say why."""
        check_instance(self.schema, instance)
        plan = build_plan(self.lowered, instance)
        check_data(self.lowered, plan, instance)
        for unit, table in zip(self.lowered.units, plan.units, strict=True):
            integers(unit, table, instance)
        raise ExecutionError(
            f"the engine refuses instance {instance.number}, which the checks accept: a defect of amphw"
        )

    def planned_bytes(self, instance: Instance, mode: Mode) -> int:
        """Memory that the instance reserves while it is in flight."""
        check_instance(self.schema, instance)
        attrs, tables = dict(instance.attrs), _readable(instance.tables)
        train, infer = self.engine.planned_bytes(instance.number, attrs, tables)
        if train < 0:
            self._explain(instance)
        return int(train if mode is Mode.TRAIN else infer)

    def poll(self, timeout: float) -> list[Report]:
        """What has retired. Raises what went wrong, and ExecutionError once nothing can move."""
        self.check()
        retired, stuck = self.engine.poll(timeout)
        try:
            self.hand_over_trace()
        except BaseException as error:
            self.fail(error)
        reports = [self._report(*r) for r in retired]
        self.collect_log()
        if self._unpolled:
            reports, self._unpolled = self._unpolled + reports, []
        try:
            self.check()
            if stuck:
                raise faults.stuck(self.engine.in_flight(), self._stuck())
        except BaseException:
            self._unpolled = reports
            raise
        return reports

    def _report(
        self,
        slot: int,
        generation: int,
        number: int,
        mode: int,
        sums: dict[str, dict[str, float]],
        rows: dict[str, int],
        outputs: list[tuple[int, list[list[float]]]],
    ) -> Report:
        out = Report(slot, generation, number, _MODES[mode], sums, rows)
        for unit, values in outputs:
            b = self.lowered.units[unit].behaviour
            assert b.program is not None
            out.outputs[b.told] = {
                label: np.array(v, np.float32).reshape(-1, t.width)
                for label, v, t in zip(b.report, values, b.program.outputs_types, strict=False)
            }
        del self._held[slot]
        return out

    def statistics(self) -> Statistics:
        forward, backward, frames, updates, staleness, busy = self.engine.statistics()
        by_name = {self.lowered.units[u].name: h for u, h in staleness.items()}
        return Statistics(forward, backward, frames, updates, by_name, busy, self.largest_gradients())

    def largest_gradients(self) -> dict[str, list[float]]:
        """By node, the largest magnitude in the gradient of each of its last updates."""
        found = self.engine.gradients()
        return {self.lowered.units[u].name: lately for u, lately in found.items() if lately}

    def edit_policy(self, table: PolicyTable) -> None:
        """Workers go by this table from now on."""
        self.policy = table
        self.engine.set_policy(_table(table))

    # --- workers ----------------------------------------------------------------------------------

    def hand_over_trace(self) -> None:
        if self.trace is None:
            return
        for w, unit, kind, begin, duration, rows, flow, number in self.engine.trace():
            name = self.lowered.units[unit].name
            if kind == len(KINDS):
                self.trace(w, name, "update", begin, duration, 0, None, None)
            else:
                self.trace(w, name, KINDS[kind], begin, duration, rows, flow if flow >= 0 else None, number)

    def wake(self) -> None:
        self.engine.stop_waiting()

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self.engine.stop_waiting()

    # --- what went wrong --------------------------------------------------------------------------

    @property
    def failed(self) -> bool:
        return self.failure is not None or self.engine.failure() is not None

    def check(self) -> None:
        if self.failure is None:
            found = self.engine.failure()
            if found is None:
                return
            self.failure = self._error(*found)
        raise self.failure

    def _error(
        self, failure: int, unit: int, slot: int, firing: int, detail: int, extra: int, text: str
    ) -> Exception:
        if failure == Failure.Replay and unit < 0:
            return ReplayDiffers(text)
        units = self.lowered.units
        u = units[unit]
        instance = self._held[slot][0] if slot in self._held else Instance()
        number = instance.number
        if failure == Failure.Replay:
            state = KeySpace(u.behaviour.state, instance).state(firing)
            return not_ready(u.name, KINDS[detail], number, state)
        if failure == Failure.Fault:
            reason = faults.trapped(u.traps[detail]) if detail >= 0 else faults.OUTSIDE_A_TABLE
            return faults.undeliverable(u, instance, firing, reason)
        if failure == Failure.Outside:
            return faults.outside_domain(u, units[detail], instance)
        if failure == Failure.Twice:
            return faults.twice(units[detail], extra, instance)
        if failure == Failure.Index:
            return faults.unreadable(u, instance, firing, text)
        if failure == Failure.Absent:
            return faults.not_pulled(u, instance, firing, text, detail)
        if failure == Failure.Decision:
            return faults.undecided(u, detail, extra, choices(u.behaviour.decides[detail][0]))
        if failure == Failure.Loss:
            return NonFiniteError(u.behaviour.told, "forward", f"the loss of instance {number}")
        if failure == Failure.Gradient:
            return NonFiniteError(u.name, "backward", f"the gradient of '{text}'")
        if failure == Failure.Memory:
            return DeviceLostError(
                f"node '{u.name}': the device has {text}, and nothing ends that would make some. Raise "
                "device.memory, or lower max_active_keys, device.frame_cap or device.frame_rows."
            )
        return ExecutionError(f"node '{u.name}': the engine failed: {text}")

    def _stuck(self) -> list[str]:
        lines = []
        for slot, _, unit, firing, left, operands in self.engine.pending():
            instance = self._held[slot][0]
            lines.append(faults.waiting(self.lowered.units[unit], left, operands, instance, firing))
        return lines

    # --- log --------------------------------------------------------------------------------------

    def collect_log(self) -> None:
        """Take over what the engine has noted, if anybody wants it; see `amphw.ir.service_log`."""
        if self.log is None:
            return
        for event in self.engine.events():
            self.log.append(self._logged(*event))

    def _logged(self, event: int, a: int, b: int, c: int, keys: Sequence[tuple[int, int, int]]) -> Event:
        name = _EVENTS[event]
        if event == EventType.Start:
            runs = [((number, _MODES[mode].value), firing) for number, mode, firing in keys]
            firings = tuple((*run, self.firings.of(run, b).state(firing)) for run, firing in runs)
            return name, a, self.lowered.units[b].name, KINDS[c], firings
        if event == EventType.End:
            return name, a
        if event == EventType.Seal:
            return name, self.lowered.units[a].name, CAUSES[b]
        if event == EventType.Reduced:
            return name, self.lowered.units[a].name
        if event == EventType.Retire:
            self.firings.retire((a, _MODES[b].value))
        return name, a, _MODES[b].value


def _readable(tables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tables as the engine reads them: contiguous, in the machine's byte order."""
    return {name: np.ascontiguousarray(t, t.dtype.newbyteorder("=")) for name, t in tables.items()}


def _table(policy: PolicyTable) -> dict[str, Any]:
    """A policy's table by queue number."""
    return {
        "priority": [p for kinds in policy.priority for p in kinds],
        "min_rows": [m for kinds in policy.min_rows for m in kinds],
        "order": ORDERS.index(policy.order),
    }


def _served(lowered: Lowered, workers: int, placement: Sequence[set[int]] | None) -> list[list[int]]:
    """The queues of each worker."""
    units = range(len(lowered.units))
    per_worker = placement if placement is not None else [set(units)] * workers
    n = len(KINDS)
    return [[u * n + k for u in sorted(mine) for k in range(n)] for mine in per_worker]
