"""A run on several devices: the CPU device's engine, and parts that compute the nodes placed on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from amphw.cpu_runtime import planes
from amphw.engine import faults
from amphw.engine.environment import ENGINE, NO_NATIVE
from amphw.engine.lowering.lower import lower
from amphw.engine.lowering.placing import HOST, Placing, asked_for, links_asked_for, place, units_of
from amphw.engine.parts.arena import Arena
from amphw.engine.parts.driver import LOOK, PartDriver
from amphw.engine.parts.executor import Executor, RegionPart
from amphw.engine.parts.launches import launches_found
from amphw.engine.parts.links import FIXED, carried_found, check_labels, links_found
from amphw.engine.parts.part import AnyPart, ModelsLink, joins, keeps, offered
from amphw.engine.parts.region import Regions
from amphw.engine.parts.replay import PartReplay
from amphw.engine.parts.sleeper import Sleeper
from amphw.engine.plane_device import NAP, PlaneDevice
from amphw.engine.policy import check_settings
from amphw.ir.device import (
    SILENCE,
    Capabilities,
    Device,
    DeviceOptions,
    Findings,
    LinkUse,
    Mode,
    Report,
    StartsSlowly,
    Statistics,
)
from amphw.ir.errors import AmphwError, DeviceAbsentError, DeviceLostError, ExecutionError
from amphw.ir.exchange import Names, NodeGradient, Rows, give_gradients, gradients_of, put_values
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.passes import fuse
from amphw.ir.precision import only_float32
from amphw.ir.service_log import LogEnded, ServiceLog
from amphw.ir.update import NodeParameters, UpdateRule, initial_parameters
from amphw.mixed.admission import Admission, Offer
from amphw.mixed.findings import told
from amphw.mixed.unavailable import Unavailable, unavailable

if TYPE_CHECKING:  # it may not be built
    from amphw.cpu_runtime.native_plane import NativePlane

REPLAY_ROOM = 2
"""How many times the logged run's shared memory a replay sets aside, where the devices allow it."""


class MixedDevice(PlaneDevice):
    """devices: by label, those beside the CPU, each of which offers a part. absent: by label, those that
    should be there, and why they are not. replay: the log of a run, which is then repeated in the calling
    thread; parts that log themselves are exchanged for ones that repeat what those did.

    settings: place (label, or "cpu", by node; of the others, see `engine.lowering.placing`), and those of
    the CPU device but placement. Parameters survive `close`, until the next `load`.
    """

    host_takes_turns = True
    """Whether the CPU gets a share of the nodes with parameters that nobody has placed."""

    def __init__(
        self,
        devices: Mapping[str, Device],
        absent: Mapping[str, str] | None = None,
        replay: ServiceLog | None = None,
    ) -> None:
        super().__init__(replay)
        self.devices, self.absent = dict(devices), dict(absent or {})
        self.parts: dict[str, AnyPart] = {}
        others = [d for d in devices.values() if d is not self]
        self._slow = [d.slow_start() for d in others if isinstance(d, StartsSlowly)]
        for label, device in devices.items():
            if label == HOST:
                raise AmphwError(f"the device '{HOST}' is in every run already: give this one another name")
            try:
                self.parts[label] = offered(device)
            except DeviceAbsentError as error:  # by now, in place of one that is lost
                del self.devices[label]
                self.absent[label] = str(error)
        kind, _ = planes.chosen()
        if kind.name != "C++ data plane":
            raise AmphwError(
                "several devices in one run need the C++ data plane, which is missing or not wanted here: "
                f"install amphw with a C++ compiler, and set neither {ENGINE}=numpy nor {NO_NATIVE}"
            )
        self.placing = Placing()
        self._drivers: list[PartDriver] = []
        self._sleepers: dict[str, Sleeper] = {}
        self._regions: Regions | None = None
        self.params: dict[str, NodeParameters] = {}

    def capabilities(self) -> Capabilities:
        each = {label: part.capabilities() for label, part in self.parts.items()}
        host = Capabilities("cpu", "cpu")
        optimizers = [o for o in host.optimizers if all(o in c.optimizers for c in each.values())]
        rooms = [c.instance_bytes for c in each.values() if c.instance_bytes is not None]
        return Capabilities(
            ",".join([HOST, *each]),
            "mixed",
            workers=1 + len(each),
            instance_bytes=min(rooms, default=None),
            optimizers=tuple(optimizers),
            notes="; ".join(f"{label}: {c.full_name}" for label, c in each.items()),
        )

    def places(self) -> list[str]:
        """See `Places`."""
        return [HOST, *self.parts, *self.absent]

    def slow_start(self) -> str:
        """See `StartsSlowly`."""
        return "; ".join(dict.fromkeys(filter(None, self._slow)))

    def explained(self) -> list[str]:
        """See `Explains`."""
        lines = [
            f"WARNING: {label} is not there, the {HOST} takes its place: {why}"
            for label, why in self.absent.items()
        ]
        lines += [
            f"placed on {label}: {', '.join(self.placing.on(label)) or 'nothing'}"
            for label in [*self.parts, HOST]
        ]
        for (node, label), why in self.placing.refused.items():
            lines.append(f"{label} refuses {node}, which goes to {self.placing.of[node]}: {why}")
        return lines

    def load(self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions) -> None:
        self.close()
        settings = options.settings
        check_settings(settings, "workers", "frame_cap", "frame_rows", "min_rows")
        only_float32(settings, "a run on several devices")
        self._state_links(settings.get("links", ""))
        theirs = {k: v for k, v in settings.items() if k != "links"}
        wanted = asked_for(settings.get("place", ""))
        if settings.get("placing") == "search" and not set(graph.parameterised) <= set(wanted):
            raise AmphwError(
                "device.placing=search is for `amphw train`, which searches before the run; elsewhere set "
                "device.place to what `amphw place` proposes"
            )
        self.placing = place(
            graph,
            lower(graph),
            self.parts,
            rules,
            wanted,
            self.host_takes_turns,
            self.absent,
        )
        self._patience = float(settings.get("silence", SILENCE))
        self._drivers, self._regions = [], None
        self._at: dict[str, PartDriver] = {}
        self._serves: dict[int, PartDriver] = {}
        self._names = graph.parameterised
        self._kept: dict[str, NodeParameters] | None = None
        workers = int(settings.get("workers", 1))
        try:
            plane, regions = self._set_up(graph, rules, replace(options, settings=theirs), workers)
        except Unavailable as missing:
            del self.parts[missing.label], self.devices[missing.label]
            self.absent[missing.label] = str(missing)
            self.load(graph, rules, options)
            return
        serves, self._regions = self._serves, regions
        self._admission = Admission(plane, self._drivers, self._pumped)
        self.start(plane, lambda plane, log: PartReplay(plane, log, serves, regions), workers)
        for driver in self._drivers if self.replay is None else ():
            driver.start()
        if regions is not None and self.replay is None:
            regions.start(self._stop)

    def _set_up(
        self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions, workers: int
    ) -> tuple[NativePlane, Regions | None]:
        """Lower the graph as it is placed, and make everything ready that computes."""
        settings = options.settings
        used = {label: part for label, part in self.parts.items() if self.placing.on(label)}
        regional = {label: part for label, part in used.items() if isinstance(part, RegionPart)}
        self._sleepers = {label: part for label, part in used.items() if isinstance(part, Sleeper)}
        apart = {n for n, label in self.placing.of.items() if label in used and label not in regional}
        homes = {n: label for n, label in self.placing.of.items() if label in regional}
        self.lowered = lower(fuse(graph, apart, homes) if settings.get("fuse", True) else graph)
        outside = {n for n in apart if self.placing.of[n] not in self._sleepers}  # which parts compute
        owners = {n: graph.nodes[n].params for n in graph.parameterised if n not in outside}
        self.params = initial_parameters(owners, dict(rules), options.seed)
        units = dict(zip(used, units_of(self.lowered, self.placing, list(used)), strict=True))
        numbers = {label: workers + k for k, label in enumerate(used)}
        served = {label: {u.index for u in units[label]} for label in used if label not in self._sleepers}
        away = set().union(*served.values())
        asleep = [
            sleeper.describe(units[label], numbers[label], number)
            for number, (label, sleeper) in enumerate(self._sleepers.items())
        ]
        arena = None
        if regional:
            sizes, limits = zip(*(part.shared_bytes(settings) for part in regional.values()), strict=True)
            # A replay begins and ends frames in the log's order, but allocates in an order of its own: what
            # the logged run had just room for may find its memory in pieces.
            room = min(sizes) * (REPLAY_ROOM if self._logged is not None else 1)
            arena = Arena(min(room, *limits))
        kind, _ = planes.chosen()
        self.log: list[Any] = []
        plane = kind(
            self.lowered,
            self.params,
            updates=options.updates,
            workers=workers + len(used),
            placement=[{u.index for u in self.lowered.units} - away] * workers
            + [served.get(label, set()) for label in used],
            settings=settings,
            log=self.log if options.log else None,
            keys=options.max_active_keys,
            shared=(arena.address, arena.size) if arena is not None else None,
            regions={u.index: numbers[label] for label in regional for u in units[label]},
            outside={u for label in served if label not in regional for u in served[label]},
            joining={u.index: numbers[label] for label in used if joins(used[label]) for u in units[label]},
            sleepers=[device for device, _ in asleep],
            slept={unit: what for _, each in asleep for unit, what in each.items()},
        )
        for number, sleeper in enumerate(self._sleepers.values()):
            sleeper.attach(plane.engine, number)
        self._arena = arena
        executors: list[Executor] = []
        try:
            for label, part in used.items():
                if isinstance(part, Sleeper):
                    continue
                with unavailable(label):
                    if isinstance(part, RegionPart):
                        assert arena is not None
                        mine = [(u, plane.tiled[u.index]) for u in units[label]]
                        executors.append(part.open(numbers[label], label, mine, self.params, arena, settings))
                        continue
                    driver = PartDriver(plane, self.lowered, numbers[label], part, label, self._patience)
                    self._drivers.append(driver)
                    part.load(graph, self.lowered, units[label], rules, options)
                self._at |= {u.name: driver for u in units[label] if u.owns}
                self._serves |= {u.index: driver for u in units[label]}
            return plane, Regions(plane, executors, self.params) if executors else None
        except BaseException:
            for executor in executors:
                executor.close()
            for driver in self._drivers:
                driver.part.close()
            self._drivers = []
            raise

    def linkable(self) -> list[str]:
        """See `Linked`."""
        return [
            label for label, part in self.parts.items() if isinstance(part, ModelsLink) and part.models_link()
        ]

    def _state_links(self, text: str) -> None:
        links = links_asked_for(text)
        check_labels(links, self.parts, self.absent)
        for label, rate in links.items():
            part = self.parts.get(label)
            if part is None:  # it is absent
                continue
            if label not in self.linkable():
                raise AmphwError(f"device.links: {label} ({part.capabilities().name}): {FIXED}")
            assert isinstance(part, ModelsLink)
            part.state_link(rate)
        self._linked = set(links)
        self._uses: dict[str, LinkUse] = {}

    def findings(self) -> Findings:
        """See `Investigates`."""
        keeping = {label for label, part in self.parts.items() if keeps(part)}
        executors = self._regions.executors if self._regions is not None else []
        return told(
            carried_found(self.carried(), keeping),
            links_found(self._uses if not self._open else self._link_uses()),
            launches_found({e.label: e.launches() for e in executors}),
        )

    def carried(self) -> dict[str, tuple[int, int]]:
        """By label of a device, bytes of the messages that crossed over to it and back since `load`, without
        tables and parameters. Where what a device's nodes send each other stays there, these are the messages
        that pass its border."""
        found = {driver.label: driver.carried() for driver in self._drivers}
        found |= {label: sleeper.carried() for label, sleeper in self._sleepers.items()}
        return found | (self._regions.carried() if self._regions is not None else {})

    def _link_uses(self) -> dict[str, LinkUse]:
        found = {driver.label: driver.link_use() for driver in self._drivers if driver.label in self._linked}
        found |= {
            label: sleeper.link_use() for label, sleeper in self._sleepers.items() if label in self._linked
        }
        return {label: use for label, use in found.items() if use is not None}

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        if not self._open:
            raise ExecutionError("the device is closed; load a graph first")
        if self.replay is not None:
            self.replay.submit(slot, generation, instance, mode)
            return
        if (held := self._admission.held(slot)) is not None:
            raise faults.occupied(slot, held)
        self._admission.offer((slot, generation, instance, mode))

    def _pumped(self, offer: Offer) -> bool:
        """Give it to the engine, which may have no room in the memory that it shares."""
        slot, _, instance, mode = offer

        def submit() -> None:
            super(MixedDevice, self).submit(*offer)

        if self._regions is not None:
            return self._regions.pump(submit, slot, instance, mode)
        submit()
        return True

    def spare(self) -> MixedDevice | None:
        """See `Degrades`."""
        lost = {driver.label: driver.lost for driver in self._drivers if driver.lost}
        if self._regions is not None:
            lost |= self._regions.lost
        left = {label: device for label, device in self.devices.items() if label not in lost}
        return MixedDevice(left, {**self.absent, **lost}) if lost else None

    def poll(self, timeout: float = 0.0) -> list[Report]:
        if self.replay is not None:
            reports = self.replay.run()
            if not reports and self.replay.left:
                raise LogEnded(self.replay.left)
        else:
            for driver in self._drivers:
                driver.watch()
            if self._regions is not None:
                self._regions.watch(self._patience)
            reports = self.plane.poll(min(timeout, LOOK) if self._admission.waiting else timeout)
            if self._regions is not None:
                self._regions.check_predicted(reports)
        for report in reports:
            for driver in self._drivers:
                driver.end(report.slot)
        self._admission.go_on()
        return reports

    def drain(self) -> list[Report]:
        out: list[Report] = []
        while self.replay is not None and (found := self.poll()):
            out += found
        while self.replay is None and (self.plane.in_flight or self._admission.waiting):
            found = self.poll(NAP if self._open else 0.0)
            if not found and not self._open:  # nobody is left who could finish them
                raise ExecutionError(f"closed with {self.plane.in_flight} instance(s) in flight; drain first")
            out += found
        if self.replay is None:  # else a log holds the sums, at their place among the frames
            self.plane.flush()
            if self._regions is not None:
                self._regions.flush()
        return out

    def update(self, nodes: Sequence[str] | None = None) -> None:
        wanted = list(nodes) if nodes is not None else list(self._names)
        regions = self._regions
        away = {n for n in wanted if regions is not None and regions.has(self.lowered.by_name.get(n, -1))}
        super().update([n for n in wanted if n not in self._at and n not in away])
        if regions is not None and away and self.replay is None:
            regions.update([n for n in wanted if n in away])
        for driver in self._drivers:
            if mine := [n for n in wanted if self._at.get(n) is driver]:
                driver.update(mine)

    def parameters(self) -> dict[str, NodeParameters]:
        if self._kept is not None:
            return self._kept
        found = super().parameters()
        if self._regions is not None:
            self._regions.fetch()
        for driver in self._drivers:
            found = found | driver.parameters()
        return {name: found[name] for name in self._names}

    def gradients(self, by_rows: Names) -> dict[str, NodeGradient]:
        """See `Exchanges`: those of parts come with everything else."""
        self.drain()
        return gradients_of(self.parameters(), by_rows)

    def give(self, gradients: Mapping[str, NodeGradient]) -> None:
        """See `Exchanges`."""
        give_gradients(self.parameters(), gradients)

    def keep(self, names: Names, away: Names) -> None:
        """See `Exchanges`; it lets go of nothing, as it has everything in one place."""
        super().keep(names, {})

    def put(self, values: Mapping[str, Mapping[str, np.ndarray | Rows]]) -> None:
        """See `Exchanges`. Parts update what is kept all the same, until this puts it in place again."""
        put_values(self.parameters(), values)

    def statistics(self) -> Statistics:
        out = super().statistics()
        for driver in self._drivers:
            own = driver.statistics()
            out.updates += own.updates
            out.staleness |= own.staleness
            out.gradients |= own.gradients
        if self._regions is not None:
            out.gradients |= self._regions.largest_gradients()
        return out

    def close(self) -> None:
        if not self._open:
            return
        for driver in self._drivers:
            driver.stop()
        super().close()
        if self._regions is not None:
            self._regions.join()
        try:
            if not self.plane.failed:
                self._kept = None
                self._kept = self.parameters()
                self._uses = self._link_uses()
        except DeviceLostError:  # which is told to whoever asks for them
            pass
        finally:
            for driver in self._drivers:
                driver.close()
            if self._regions is not None and self._arena is not None:
                self._regions.close()
                self._arena.forget()
