"""A run on several devices: the CPU device's engine, and parts that compute the nodes placed on them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from amphw.cpu_runtime import planes
from amphw.engine import faults
from amphw.engine.environment import ENGINE, NO_NATIVE
from amphw.engine.lowering.lower import lower
from amphw.engine.lowering.placing import HOST, Placing, asked_for, links_asked_for, place, units_of
from amphw.engine.parts.driver import LOOK, PartDriver
from amphw.engine.parts.links import FIXED, check_labels, links_found
from amphw.engine.parts.part import ModelsLink, Part, offered
from amphw.engine.parts.replay import PartReplay
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
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.instance_check import check_instance
from amphw.ir.passes import fuse
from amphw.ir.service_log import LogEnded, ServiceLog
from amphw.ir.update import NodeParameters, UpdateRule, initial_parameters


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
        self.parts: dict[str, Part] = {}
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
        self._state_links(settings.get("links", ""))
        theirs = replace(options, settings={k: v for k, v in settings.items() if k != "links"})
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
        patience = float(settings.get("silence", SILENCE))
        elsewhere = {n for n, label in self.placing.of.items() if label != HOST}
        self.lowered = lower(fuse(graph, elsewhere) if settings.get("fuse", True) else graph)
        owners = {n: graph.nodes[n].params for n in graph.parameterised if n not in elsewhere}
        self.params = initial_parameters(owners, dict(rules), options.seed)
        used = {label: part for label, part in self.parts.items() if self.placing.on(label)}
        units = units_of(self.lowered, self.placing, list(used))
        outside = {u.index for each in units for u in each}
        workers = int(settings.get("workers", 1))
        here = {u.index for u in self.lowered.units} - outside
        kind, _ = planes.chosen()
        self.log: list[Any] = []
        plane = kind(
            self.lowered,
            self.params,
            updates=options.updates,
            workers=workers + len(used),
            placement=[here] * workers + [{u.index for u in each} for each in units],
            settings=settings,
            log=self.log if options.log else None,
            keys=options.max_active_keys,
            outside=outside,
        )
        self._drivers = []
        self._waiting: deque[tuple[int, int, Instance, Mode]] = deque()  # for room
        self._full: PartDriver | None = None  # who had none
        self._moved = time.perf_counter()  # when something was in flight, or nothing waited
        self._at: dict[str, PartDriver] = {}
        serves: dict[int, PartDriver] = {}
        for k, ((label, part), mine) in enumerate(zip(used.items(), units, strict=True)):
            try:
                part.load(graph, self.lowered, mine, rules, theirs)
            except BaseException as error:
                for each in (part, *(driver.part for driver in self._drivers)):
                    each.close()
                self._drivers = []
                if not isinstance(error, DeviceAbsentError | DeviceLostError):
                    raise
                del self.parts[label], self.devices[label]
                self.absent[label] = str(error)
                self.load(graph, rules, options)
                return
            driver = PartDriver(plane, self.lowered, workers + k, part, label, patience)
            self._drivers.append(driver)
            self._at |= {u.name: driver for u in mine if u.owns}
            serves |= {u.index: driver for u in mine}
        self._names = graph.parameterised
        self._kept: dict[str, NodeParameters] | None = None
        self.start(plane, lambda plane, log: PartReplay(plane, log, serves), workers)
        for driver in self._drivers if self.replay is None else ():
            driver.start()

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
        """See `Investigates`: what the links with a rate were loaded with."""
        return links_found(self._uses if not self._open else self._link_uses())

    def _link_uses(self) -> dict[str, LinkUse]:
        return {
            driver.label: use
            for driver in self._drivers
            if driver.label in self._linked and (use := driver.link_use()) is not None
        }

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        if not self._open:
            raise ExecutionError("the device is closed; load a graph first")
        if self.replay is not None:
            self.replay.submit(slot, generation, instance, mode)
            return
        held = self.plane.instance(slot) or next((i for s, _, i, _ in self._waiting if s == slot), None)
        if held is not None:
            raise faults.occupied(slot, held)
        if self._waiting or not self._begin(slot, generation, instance, mode):
            check_instance(self.plane.schema, instance)  # what is wrong with it is told now
            self._waiting.append((slot, generation, instance, mode))

    def _pump(self) -> None:
        """Instances for which all devices have room are pumped, in order: the oldest is always there."""
        while self._waiting:
            offer = self._waiting.popleft()  # one that is refused is not in flight
            if not self._begin(*offer):
                self._waiting.appendleft(offer)
                return

    def _begin(self, slot: int, generation: int, instance: Instance, mode: Mode) -> bool:
        """Pump it, if there is room everywhere -> whether there was."""
        begun: list[PartDriver] = []
        room = False
        try:
            for driver in self._drivers:
                if not driver.begin(slot, generation, instance, mode):
                    self._full = driver
                    return False
                begun.append(driver)
            super().submit(slot, generation, instance, mode)
            room = True
        except Exception:
            check_instance(
                self.plane.schema, instance
            )  # which takes long, and says what a part may stumble over
            raise
        finally:
            for driver in begun if not room else ():
                driver.end(slot)
        return True

    def spare(self) -> MixedDevice | None:
        """See `Degrades`."""
        lost = {driver.label: driver.lost for driver in self._drivers if driver.lost}
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
            reports = self.plane.poll(min(timeout, LOOK) if self._waiting else timeout)
        for report in reports:
            for driver in self._drivers:
                driver.end(report.slot)
        self._pump()
        self._check_room()
        return reports

    def _check_room(self) -> None:
        """A part that has none while it has nothing will never have any."""
        now = time.perf_counter()
        if self.plane.in_flight or not self._waiting or self._full is None:
            self._moved = now
        elif now - self._moved > self._full.patience:
            self._full.lose(
                f"has had no room for an instance for {now - self._moved:.1f} s, though none is in flight"
            )

    def drain(self) -> list[Report]:
        out: list[Report] = []
        while self.replay is not None and (found := self.poll()):
            out += found
        while self.replay is None and (self.plane.in_flight or self._waiting):
            found = self.poll(NAP if self._open else 0.0)
            if not found and not self._open:  # nobody is left who could finish them
                raise ExecutionError(f"closed with {self.plane.in_flight} instance(s) in flight; drain first")
            out += found
        if self.replay is None:  # else a log holds the sums, at their place among the frames
            self.plane.flush()
        return out

    def update(self, nodes: Sequence[str] | None = None) -> None:
        wanted = list(nodes) if nodes is not None else list(self._names)
        super().update([n for n in wanted if n not in self._at])
        for driver in self._drivers:
            if mine := [n for n in wanted if self._at.get(n) is driver]:
                driver.update(mine)

    def parameters(self) -> dict[str, NodeParameters]:
        if self._kept is not None:
            return self._kept
        found = super().parameters()
        for driver in self._drivers:
            found = found | driver.parameters()
        return {name: found[name] for name in self._names}

    def statistics(self) -> Statistics:
        out = super().statistics()
        for driver in self._drivers:
            own = driver.statistics()
            out.updates += own.updates
            out.staleness |= own.staleness
            out.gradients |= own.gradients
        return out

    def close(self) -> None:
        if not self._open:
            return
        for driver in self._drivers:
            driver.stop()
        super().close()
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
