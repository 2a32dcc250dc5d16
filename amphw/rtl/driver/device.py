"""A generated device behind the device protocol, whatever carries its words: the host's half of it.

What is sent to the device's nodes, and what becomes of what they send, is the border's business: sources and
losses, or the other devices of a run. An instance is pumped once pieces of all of the device's memories are
reserved for it; until then it waits in a queue. Nothing is sent to the device that has no place there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from amphw.engine import faults
from amphw.engine.lowering.lower import Path
from amphw.engine.lowering.plan import PathTable, Plan, Planner, check_data
from amphw.ir.device import Capabilities, DeviceOptions, Mode, Report, Statistics
from amphw.ir.errors import AmphwError, DeviceLostError, ExecutionError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.instance_check import check_instance
from amphw.ir.precision import only_float32
from amphw.ir.service_log import COUNTS_ENDED
from amphw.ir.update import NodeParameters, UpdateRule, initial_parameters, no_parameters
from amphw.rtl.driver.active import Active, Link
from amphw.rtl.driver.arena import Arena
from amphw.rtl.driver.border import Border, HostBorder, Sent
from amphw.rtl.driver.layout import Layout, Placed, make_layout, path_table, table_room, table_words
from amphw.rtl.driver.messages import Messages, Outgoing
from amphw.rtl.driver.parameters import ParameterLink
from amphw.rtl.driver.watch import Watcher, who_waits
from amphw.rtl.fixed.parameters import UPDATES
from amphw.rtl.isa.wire import WORD, Fault, Kind, pack
from amphw.rtl.numbers.formats import DEFAULT, Formats
from amphw.rtl.plan.hardware import MOST_WORDS, HardwarePlan, Sizes, hardware_plan
from amphw.rtl.plan.sizing import memory_sizes

MEMORIES = {"payload", "firings", "places", "table"}
"""Settings that say how large memories are; without any they have room for all keys."""

NEVER = 2**31 - 1
"""An interval that nobody completes."""

BURST = 20_000
"""Cycles after which the host looks at what has come."""

SILENCE = 100
"""Bursts without a sign of life until a device counts as stuck; an update takes a cycle for every weight."""


class HardwareDevice(ABC):
    """Drives the device of a plan over a link.

    argument: number formats, as in `q4.12`. nodes: those of the graph that are placed on it, all if not said.
    border: who has the others.
    """

    name = "rtl"
    watched = True
    """Whether the link tells what the device does (`Link.exchange`)."""
    remedy = "load the graph again, which resets it"
    """Of silence."""
    built: Collection[str] | None = None
    """Nodes of its circuit, where that was built before."""

    def __init__(self, argument: str = DEFAULT, nodes: Collection[str] | None = None):
        self.formats, self.nodes = Formats.parse(argument), nodes
        self.border: Border = HostBorder(self)
        self.link: Link | None = None

    @abstractmethod
    def make_link(self, plan: HardwarePlan, writes: bool) -> Link:
        """writes: whether what the engines write is watched."""

    def capabilities(self) -> Capabilities:
        return Capabilities(
            self.name,
            "fpga",
            formats=(str(self.formats),),
            optimizers=UPDATES,
            instance_bytes=MOST_WORDS * WORD // 8,
        )

    # --- the protocol -----------------------------------------------------------------------------

    def check(self, graph: Graph, rules: Mapping[str, UpdateRule]) -> None:
        """See `ChecksAhead`."""
        hardware_plan(graph, rules, self.formats, Sizes(), self.nodes)

    def load(self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions) -> None:
        self.close()
        only_float32(options.settings, self.capabilities().name)
        self.options = options
        self.plan = plan = self.make_plan(graph, rules, options)
        sizes = plan.sizes
        owners = {u.name: graph.nodes[u.name].params for u in plan.partition.units if u.owns}
        self.given = initial_parameters(owners, dict(rules), options.seed)
        self._link = ParameterLink(self)  # what does not fit is told before anything is built
        writes = bool(options.settings.get("watch_writes", False))
        self.link = self.make_link(plan, writes)
        self._messages = Messages()
        self._out = Outgoing()
        self._waiting: deque[tuple[int, int, Instance, Mode]] = deque()
        self._unpolled: dict[int, Instance] = {}  # by slot, that were submitted
        self.active: dict[int, Active] = {}
        self._done: list[Report] = []
        self._answers: list[dict[str, int]] = []
        self.log: list[Any] = [COUNTS_ENDED] if options.log else []
        self.stats = Statistics(busy=[0.0])
        self._arenas = (
            Arena(0, sizes.firings),
            Arena(0, sizes.places),
            Arena(plan.reserved, sizes.payload),
            Arena(plan.table_reserved, sizes.table),
        )
        self._planner: Planner[Plan] = Planner(plan.lowered, lambda p: p)
        self._layouts: dict[int, Layout] = {}
        self.border.prepare()
        self.watcher = Watcher(self, writes)
        self._silent = 0  # bursts
        self._link.write()

    def make_plan(
        self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions
    ) -> HardwarePlan:
        """What `load` has the device built by."""
        sizes = self.sizes(options)
        if options.updates != "self":  # nodes wait for the controller, or only add up
            waiting = {n: replace(rule, interval=NEVER) for n, rule in rules.items()}
            rules = {"*": replace(UpdateRule(), interval=NEVER), **waiting}
        plan = hardware_plan(graph, rules, self.formats, sizes, self.nodes)
        if not MEMORIES & set(options.settings):
            wanted = memory_sizes(plan, options.max_active_keys, options.max_infer_keys)
            most = {name: min(getattr(wanted, name), MOST_WORDS) for name in MEMORIES}
            sizes = replace(wanted, **most)  # keys that do not fit wait
            plan = replace(plan, sizes=sizes)
        return plan

    def sizes(self, options: DeviceOptions) -> Sizes:
        chosen = {k: int(options.settings[k]) for k in Sizes.__dataclass_fields__ if k in options.settings}
        return Sizes(**{"slots": options.max_active_keys + options.max_infer_keys, **chosen})

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        if self.link is None:
            raise ExecutionError("the device is closed; load a graph first")
        if slot in self._unpolled:
            raise faults.occupied(slot, self._unpolled[slot])
        check_instance(self.plan.graph.schema, instance)
        self._unpolled[slot] = instance
        self._waiting.append((slot, generation, instance, mode))
        self._pump()

    def planned_bytes(self, instance: Instance, mode: Mode) -> int | None:
        return None

    def poll(self, timeout: float = 0.0) -> list[Report]:
        if (self.active or self._waiting) and not self._done:
            self.turn()
        done, self._done = self._done, []
        for report in done:
            del self._unpolled[report.slot]
        return done

    def drain(self) -> list[Report]:
        out: list[Report] = []
        while self.active or self._waiting or self._done:
            out += self.poll()
        return out

    def update(self, nodes: Sequence[str] | None = None) -> None:
        self._link.push()  # gradients may be others than the circuit has summed up
        for name in nodes if nodes is not None else self.given:
            if name not in self.given:
                raise AmphwError(no_parameters(name))
            self._link.update(name)

    def parameters(self) -> dict[str, NodeParameters]:
        if self.link is None:
            return self._kept
        self._link.push()  # what was shown before may have been changed, and is forgotten now
        return self._link.read()

    def statistics(self) -> Statistics:
        out, self.stats = self.stats, Statistics(busy=[0.0])
        return out

    def admit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> bool:
        """As `submit`, but an instance for which there is no room now does not wait."""
        check_instance(self.plan.graph.schema, instance)
        self._link.push()
        return self._begin(slot, generation, instance, mode)

    def counters(self) -> dict[str, int]:
        """What the device has counted since its reset, by the names in `rtl.isa.counters` and by path."""
        return self._link.counters()

    def close(self) -> None:
        if self.link is None:
            return
        try:
            self._link.push()
            self._kept = self._link.read() if not self.active else self.given
        except (DeviceLostError, ExecutionError):  # it is gone, or stuck
            self._kept = self.given
        finally:
            self.link.close()
            self.link = None

    # --- pumping ----------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Instances that fit go to the device, in their order."""
        self._link.push()
        while self._waiting and self._begin(*self._waiting[0]):
            self._waiting.popleft()

    def _layout(self, instance: Instance) -> Layout:
        plan = self._planner.plan(instance)
        if id(plan) not in self._layouts:
            if len(self._layouts) > self._planner.keep:
                self._layouts.clear()
            self._layouts[id(plan)] = make_layout(self.plan, plan, instance)
        return self._layouts[id(plan)]

    def _begin(self, slot: int, generation: int, instance: Instance, mode: Mode) -> bool:
        if slot in self.active:  # its last instance is not through
            return False
        layout = self._layout(instance)
        check_data(self.plan.lowered, layout.plan, instance)
        sizes = (
            layout.n_firings,
            layout.n_places,
            layout.n_payload,
            table_room(self.plan, layout, instance),
        )
        for what, arena, size in zip(
            ("firings", "places", "payload", "table"), self._arenas, sizes, strict=True
        ):
            if size > arena.room:
                fewer = "lower max_active_keys and max_infer_keys, " if what == "table" else ""
                raise DeviceLostError(
                    f"instance {instance.number} does not fit on the device even alone: it needs {size} "
                    f"words of its {what} memory, which has {arena.room} for instances, and never more than "
                    f"{MOST_WORDS} in all. Make instances smaller (--set batch, where the model has one), "
                    f"{fewer}or, in a run on several devices, give nodes to the CPU (device.place=NODE=cpu)."
                )
        taken: list[int] = []
        for arena, size in zip(self._arenas, sizes, strict=True):
            at = arena.take(size)
            if at is None:
                for a, first, n in zip(self._arenas, taken, sizes, strict=False):
                    a.give(first, n)
                return False
            taken.append(at)
        placed = Placed(*taken)
        report = Report(slot, generation, instance.number, mode)
        active = self.active[slot] = Active(slot, generation, instance, report, layout, placed, sizes)
        if self.watched:
            self.watcher.begins(active)
        self.note(("submit", instance.number, mode.value))
        self._tables(active)
        self.border.begin(active)
        return True

    def send(self, kind: Kind, content: Sequence[int] | np.ndarray = (), /, **fields: int) -> None:
        """A message for the device, with its payload's words."""
        self._out.add(pack(kind, words=len(content), **fields))
        if len(content):
            self._out.add(content)

    def _tables(self, a: Active) -> None:
        """Structure tables first, then what is known of the firings."""
        infer = int(a.report.mode is not Mode.TRAIN)
        key = {"slot": a.slot, "generation": a.generation & 0xFF}
        self.send(Kind.BEGIN, output=infer, **key)
        directory, words = table_words(self.plan, a.layout, a.instance, a.at)
        self.send(Kind.TABLE, directory, payload=a.slot * len(directory), **key)
        if words:
            self.send(Kind.TABLE, words, payload=a.at.table, **key)
        for u, firings in a.layout.firings.items():
            for first, count, record, stride, need in firings.runs:
                self.send(
                    Kind.FIRINGS,
                    firing=a.at.firings + first,
                    copy=count,
                    payload=a.at.payload + record,
                    place=stride,
                    state=need,
                    unit=self.plan.partition.number[u],
                    **key,
                )

    def deliver(self, a: Active, path: Path, table: PathTable, delivery: int, payload: np.ndarray) -> None:
        """A message from across the border, along a path to the device: float32 [rows, width]."""
        firing, position = int(table.firing[delivery]), int(table.position[delivery])
        u = path.target
        a.unreturned += 1
        a.sent += 1
        self.stats.forward += a.report.mode is Mode.TRAIN and not self.watched
        self.send(
            Kind.FORWARD,
            self.formats.value.quantise(payload).reshape(-1),
            slot=a.slot,
            generation=a.generation & 0xFF,
            firing=a.at.firings + a.layout.firings[u].first + firing,
            place=a.at.places + a.layout.operands[u, path.operand] + position,
            payload=a.at.payload + a.layout.arrivals[path.index][delivery],
            state=a.layout.states[u][firing],
        )

    # --- what comes back --------------------------------------------------------------------------

    def turn(self) -> bool:
        """Exchange words with the device for a while -> whether it has given a sign of life.

        ExecutionError once it has long been silent.
        """
        assert self.link is not None
        # It takes a word a cycle, at most.
        accepted, came, watched = self.link.exchange(self._out.first(BURST), BURST)
        self._out.drop(accepted)
        self.watcher.note(watched)
        heard = False
        for header, payload in self._messages.add(came):
            heard = True
            self._hear(header, payload)
        alive = heard or accepted or len(came) or watched or self._done
        self._silent = 0 if alive else self._silent + 1
        if self._silent > SILENCE:
            raise ExecutionError(
                f"the device is silent with {len(self.active)} instance(s) in flight and {len(self._out)} "
                f"word(s) that it does not take; {self.remedy}:"
                + "".join(f"\n  {line}" for a in self.active.values() for line in self._waits(a))
            )
        return self._silent == 0

    def _waits(self, a: Active) -> list[str]:
        """Who waits for whom; of a device that is not watched, what the host alone knows."""
        return who_waits(a, self.plan.lowered)[: None if self.watched else 1]

    def _hear(self, header: dict[str, int], payload: np.ndarray) -> None:
        kind = header["kind"]
        if kind == Kind.FORWARD:
            self._forward(self.active[header["slot"]], header, payload)
        elif kind == Kind.BACKWARD:
            a = self.active[header["slot"]]
            a.unreturned -= 1
            self.stats.backward += not self.watched
            self.border.returned(a, header["place"] - a.at.places, payload)
        elif kind == Kind.IDLE:
            a = self.active[header["slot"]]
            if header["copy"] == a.sent:
                self.border.idle(a)
        elif kind in (Kind.VALUE, Kind.UPDATED):
            self._answers.append(header)
        else:
            fault = Fault(header["output"]).name if header["output"] in list(Fault) else "?"
            raise ExecutionError(
                f"the device dropped a message ({fault}): {header}; it was built for another plan or another "
                "version: build it anew"
            )

    def _forward(self, a: Active, header: dict[str, int], payload: np.ndarray) -> None:
        """A unit of the device sends across the border."""
        path = self.plan.partition.outbound[header["place"]]
        source = self.plan.lowered.units[path.source]
        at = header["firing"] - a.at.firings - a.layout.firings[path.source].first
        table = path_table(self.plan, a.layout.plan, path)
        k = int(table.start[at * source.decisions + header["state"]]) + header["copy"]
        width = self.plan.lowered.units[path.target].operands[path.operand].width
        values = self.formats.value.real(payload).reshape(-1, width)
        first, places = a.layout.answers[path.index]
        answer = {
            "firing": header["firing"],
            "output": header["output"],
            "place": a.at.places + first + k,
            "payload": a.at.payload + places[k],
            "copy": header["payload"],
            "state": int(path.by_row is not None),
        }
        self.border.sent(a, Sent(path, at, table, k, values, answer))

    def answer(self, a: Active, to: Mapping[str, int], gradient: np.ndarray | None) -> None:
        """The gradient of a message that the device has sent; None: none is wanted, or it is 0."""
        words = () if gradient is None else self.formats.gradient.quantise(gradient).reshape(-1)
        self.send(Kind.BACKWARD, words, slot=a.slot, generation=a.generation & 0xFF, **to)

    def retire(self, a: Active) -> None:
        """Nothing of the instance is on its way any more: its memory is free."""
        pieces = (a.at.firings, a.at.places, a.at.payload, a.at.table)
        for arena, at, size in zip(self._arenas, pieces, a.sizes, strict=True):
            arena.give(at, size)
        if self.watched:
            self.watcher.retirement.ends(a.slot)
        del self.active[a.slot]
        self.note(("retire", a.instance.number, a.report.mode.value))
        self._pump()

    def note(self, event: tuple[Any, ...]) -> None:
        """It belongs into the log."""
        if self.options.log:
            self.log.append(event)

    def report(self, a: Active) -> None:
        """Its report may be polled."""
        self._done.append(a.report)
