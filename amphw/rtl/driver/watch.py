"""What a device did, in its order: the log that replays on the model, statistics, and who waits for whom.

Every firing is judged by the rules of retirement (`amphw.rtl.isa.retirement`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from amphw.engine.lowering.lower import Lowered
from amphw.engine.lowering.plan import Plan
from amphw.engine.numbering import FrameKind
from amphw.engine.policy import BACKWARD, FORWARD, INFER, KINDS
from amphw.ir.device import Mode
from amphw.ir.service_log import INTERVAL
from amphw.rtl.driver.layout import rows_of
from amphw.rtl.isa.events import What, unpack
from amphw.rtl.isa.retirement import Retired, Retirement
from amphw.rtl.microcode.written import words_written

if TYPE_CHECKING:
    from amphw.rtl.driver.active import Active
    from amphw.rtl.driver.device import HardwareDevice


class Watcher:
    """Turns events of the device into a log (`amphw.ir.service_log`).

    writes: of each run, what it was and the words that it wrote, by address; None: not kept. retired: the
    records of all firings, kept with them.
    """

    def __init__(self, device: HardwareDevice, writes: bool):
        self.device = device
        self._frames = 0
        self._running = 0  # the frame that the engines are at
        self.writes: list[tuple[dict[str, Any], dict[int, int]]] | None = [] if writes else None
        self.retired: list[Retired] = []
        names = [u.name for u in device.plan.partition.units]
        self.retirement = Retirement(names, self._words if writes else None)
        self._counts: dict[tuple[FrameKind, int, tuple[int, ...]], int] = {}

    def note(self, events: list[int]) -> None:
        for event in map(unpack, events):
            what, data = event["what"], event["data"]
            retired = self.retirement.note(event)
            if retired is not None and self.writes is not None:
                self.retired.append(retired)
            if what == What.WRITE:
                if self.writes is not None and self.writes:
                    self.writes[-1][1][event["firing"]] = data - 0x10000 if data & 0x8000 else data
            elif what == What.UPDATE:
                self._update(event["unit"])
            elif what == What.BEGIN:
                self._begin(event["kind"], event["unit"], event["slot"], event["firing"])
            else:
                self.device.note(("end", self._running))

    def begins(self, a: Active) -> None:
        """An instance takes its slot."""
        number = self.device.plan.partition.number
        firings = {
            number[u]: range(a.at.firings + f.first, a.at.firings + f.first + f.count)
            for u, f in a.layout.firings.items()
        }
        self.retirement.begins(a.slot, a.generation, a.report.mode is Mode.TRAIN, firings)

    def _words(self, slot: int, kind: FrameKind, unit: int, at: int) -> int:
        """What a firing writes, by its microprogram."""
        plan = self.device.plan
        u = plan.partition.units[unit].index
        code, spaces = plan.codes[u], self.device.active[slot].layout.plan.units[u].spaces
        rows = [0] * len(code.rows)
        for space, register in code.spaces.register.items():
            rows[register] = rows_of(spaces[space], at)
        key = kind, unit, tuple(rows)
        if key not in self._counts:
            programs = {FrameKind.FORWARD: code.forward, FrameKind.BACKWARD: code.backward}
            self._counts[key] = words_written(programs.get(kind, code.inference).words, rows)
        return self._counts[key]

    def _begin(self, kind: int, unit: int, slot: int, fid: int) -> None:
        d = self.device
        u = d.plan.partition.units[unit]
        a = d.active[slot]
        at = fid - a.at.firings - a.layout.firings[u.index].first
        a.ran.add((FORWARD if kind == INFER else kind, u.index, at))
        self._frames += 1
        self._running = self._frames
        d.stats.frames += 1
        self._started(a, u.index, kind, at)
        need = int(a.layout.plan.units[u.index].need[at])
        d.stats.forward += need * (kind == FORWARD)
        d.stats.backward += need * (kind == BACKWARD)
        if self.writes is not None:
            self.writes.append(({"unit": u.index, "kind": kind, "firing": at, "active": a}, {}))

    def _started(self, a: Active, unit: int, kind: int, at: int) -> None:
        state = a.layout.plan.units[unit].space.state(at)
        name = self.device.plan.lowered.units[unit].name
        firing = (a.instance.number, a.report.mode.value, state)
        self.device.note(("start", self._frames, name, KINDS[kind], (firing,)))

    def _update(self, unit: int) -> None:
        u = self.device.plan.partition.units[unit]
        self.device.note(("seal", u.name, INTERVAL))
        self.device.note(("reduced", u.name))
        self.device.stats.updates += 1

    def loss(self, a: Active, unit: int, firing: int) -> None:
        """A loss has run on the host: its forward frame, and in training its backward one."""
        for kind in (FORWARD, BACKWARD) if a.report.mode is Mode.TRAIN else (INFER,):
            self._frames += 1
            a.ran.add((FORWARD if kind == INFER else kind, unit, firing))
            self.device.stats.frames += 1
            self._started(a, unit, kind, firing)
            self.device.note(("end", self._frames))


SHOWN = 4
"""Firings of an instance that are named, at most."""


def who_waits(a: Active, lowered: Lowered) -> list[str]:
    """Who waits for whom in an instance that goes on no more: a line each, the instance's first.

    What depends on values is not known here: a message that another decision would have sent counts, too.
    """
    training = a.report.mode is Mode.TRAIN
    first = f"instance {a.instance.number} (slot {a.slot}, {a.report.mode.value}): "
    first += f"{a.unreturned} message(s) to the device have not come back" if training else "is not idle"
    ran = {kind: {key[1:] for key in a.ran if key[0] == kind} for kind in (FORWARD, BACKWARD)}
    begun: dict[tuple[int, int], None] = {}  # firings that some message was sent to
    late: dict[tuple[int, int], list[str]] = {}  # by receiver: who has not sent
    owed: list[tuple[tuple[int, int], tuple[int, int]]] = []  # (who waits for a gradient, whose)
    plan = a.layout.plan
    for sender, receiver in _deliveries(lowered, plan):
        sent = lowered.units[sender[0]].behaviour.is_source or sender in ran[FORWARD]
        if not sent:
            late.setdefault(receiver, []).append(_named(lowered, plan, sender))
        elif receiver not in ran[FORWARD]:
            begun[receiver] = None
        elif training and sender in ran[FORWARD] - ran[BACKWARD] and receiver not in ran[BACKWARD]:
            owed.append((sender, receiver))
    lines = []
    for receiver in list(begun)[:SHOWN]:
        whom = ", ".join(dict.fromkeys(late.get(receiver, []))) or "its turn: its messages were sent"
        lines.append(f"{_named(lowered, plan, receiver)} waits for {whom}")
    waits = {sender for sender, _ in owed}
    stuck = sorted(ran[FORWARD] - ran[BACKWARD] - waits) if training else []
    lines += [
        f"{_named(lowered, plan, s)} was sent all gradients and has not run backward" for s in stuck[:SHOWN]
    ]
    ends = [(s, r) for s, r in owed if r not in waits and r not in stuck]  # the others wait for these
    for sender, receiver in ends[:SHOWN]:
        whom = _named(lowered, plan, receiver)
        lines.append(f"{_named(lowered, plan, sender)} waits for the gradient of {whom}")
    return [first, *(f"  {line}" for line in lines)]


def _deliveries(lowered: Lowered, plan: Plan) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Every message that may be sent: (unit, firing) of sender and receiver."""
    for unit in lowered.units:
        for path, table in zip(unit.out, plan.units[unit.index].paths, strict=True):
            if path.target < 0:
                continue
            for outcome in range(len(table.start) - 1):
                for k in range(int(table.start[outcome]), int(table.start[outcome + 1])):
                    sender = (unit.index, outcome // unit.decisions)
                    yield sender, (path.target, int(table.firing[k]))


def _named(lowered: Lowered, plan: Plan, key: tuple[int, int]) -> str:
    """A firing by its node and state."""
    unit, firing = key
    columns = plan.units[unit].space.columns
    state = ", ".join(f"{name} = {int(column[firing])}" for name, column in columns.items())
    return f"node '{lowered.units[unit].name}'" + (f" [{state}]" if state else "")
