"""The pump: keeps a device supplied with instances and takes back what retires.

It owns the slots. A slot is free or holds one instance; each time it is filled its generation goes up, so a
report that belongs to an earlier occupant is noticed rather than counted. `Pump.run` returns with nothing in
flight, whether the instances ran out, somebody asked it to stop, or the window of a barrier mode closed.

Another stream may run beside the pump's own, in slots of its own (`Aside`). A device reports on all its slots
at once; the slot says whose a report is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from amphw.host.modes import Greedy, PumpPolicy
from amphw.ir.device import Device, Mode, Report
from amphw.ir.errors import ExecutionError
from amphw.ir.instance import Instance

POLL_S = 0.05
"""Seconds that it waits for the device, before it looks at anything else."""
_TICK_S = 0.2
STALL_S = 60.0
"""Seconds without a single retired instance after which the pump looks for moving messages, and gives up
where there are none."""
_HURRIED = 3
"""Empty polls in a row that came back at once, after which the same is done; one may be a chance wake-up."""

_LEAD = 4
"""Instances, as a multiple of those in flight at most, that one of two streams may submit while none of the
other's retires. A device may serve one kind of work for as long as there is any, or whatever came last; the
other stream would then wait for ever."""


@dataclass
class PumpHooks:
    """What the pump tells its owner; every hook runs on the pumping thread.

    report: an instance retired. keys: that many are in flight from now on, the aside's not counted. tick:
    about five times a second. moved: messages that the device has delivered since the start of the phase,
    asked for only in a stall. turn: after each look at the device, at least every 50 ms.
    """

    report: Callable[[Instance, Report], None]
    keys: Callable[[int], None] = lambda keys: None
    tick: Callable[[], None] = lambda: None
    moved: Callable[[], int] | None = None
    turn: Callable[[], None] = lambda: None


@dataclass
class Aside:
    """Instances that run beside those of `Pump.run`, in the slots of another pump. They need not run out.

    keys: in flight at most. report: one of them retired.
    """

    pump: Pump
    instances: Iterator[Instance]
    mode: Mode
    keys: int
    report: Callable[[Instance, Report], None]


class Pump:
    """Pumps instances into the slots `first .. first + count - 1` of a device."""

    def __init__(
        self, device: Device, first: int, count: int, clock: Callable[[], float] = time.perf_counter
    ):
        self._device, self._clock = device, clock
        self._free = list(range(first + count - 1, first - 1, -1))
        self._generation = dict.fromkeys(self._free, 0)
        self._held: dict[int, Instance] = {}
        self._aside: Aside | None = None

    @property
    def in_flight(self) -> int:
        return len(self._held)

    def run(
        self,
        instances: Iterable[Instance],
        mode: Mode,
        hooks: PumpHooks,
        *,
        window: int | None = None,
        barrier: bool = False,
        policy: PumpPolicy | None = None,
        stopped: Callable[[], bool] = lambda: False,
        paused: Callable[[], bool] = lambda: False,
        aside: Aside | None = None,
        update: Callable[[], None] | None = None,
        quiet: bool = False,
    ) -> int:
        """Pump until the instances run out, `stopped()` or `paused()` -> how many were pumped; all of them
        have retired.

        Instances carry their numbers already. window: in flight at most (all slots). barrier: a window
        returns as a whole, and the device gets an UPDATE before the next, by `update` if there is one.
        quiet: what runs beside retires before `update`, too, which then finds nothing in flight.
        paused: ends it as `stopped` does, but neither within a barrier's window nor before the first
        instance; both stay true once they are. aside: what runs beside; it is refilled for as long as there
        are instances to pump, and has retired as well at the end. Raises what the device raises, and
        ExecutionError for a report that belongs to nothing in flight and for a device that has stalled.
        """
        policy = policy or Greedy()
        window = min(window or len(self._generation), len(self._generation))
        source = iter(instances)
        upcoming = next(source, None)
        pumped, in_window = 0, 0
        self._tick_at = self._progress_at = self._clock()
        self._moved, self._hurried = -1, 0
        self._aside, self._own_lead, self._aside_lead = aside, 0, 0

        def over() -> bool:
            return stopped() or (pumped > 0 and not (barrier and in_window) and paused())

        while True:
            while (
                upcoming is not None
                and (in_window if barrier else len(self._held)) < window
                and policy.admits(len(self._held))
                # A barrier's window, once begun, is filled: where it ends decides what an update holds.
                and ((barrier and in_window) or not self._aside_waits(window))
                and not over()
            ):
                self._submit(upcoming, mode)
                pumped, in_window, self._own_lead = pumped + 1, in_window + 1, self._own_lead + 1
                hooks.keys(len(self._held))
                # Built while the device works on what it has.
                upcoming = next(source, None)
            if upcoming is not None and not over():
                self._fill_aside()
            if self._everything():
                self._receive(hooks)
            if not self._held:
                if barrier and in_window:
                    while quiet and self._everything():
                        self._receive(hooks)
                    (update or self._device.update)()
                in_window = 0
                if not self._everything() and (upcoming is None or over()):
                    return pumped

    def _fill_aside(self) -> None:
        aside = self._aside
        if aside is None:
            return
        keys = min(aside.keys, len(aside.pump._generation))
        while aside.pump.in_flight < keys and self._aside_lead < _LEAD * keys:
            instance = next(aside.instances, None)
            if instance is None:
                return
            aside.pump._submit(instance, aside.mode)
            self._aside_lead += 1

    def _aside_waits(self, window: int) -> bool:
        """Whether the pump's own instances have to let the aside's go on first."""
        aside = self._aside
        return aside is not None and aside.pump.in_flight > 0 and self._own_lead >= _LEAD * window

    def _everything(self) -> dict[int, Instance]:
        """All that is in flight, by slot, the aside's too."""
        return self._held if self._aside is None else {**self._held, **self._aside.pump._held}

    def _submit(self, instance: Instance, mode: Mode) -> None:
        slot = self._free.pop()
        self._generation[slot] += 1
        self._held[slot] = instance
        self._device.submit(slot, self._generation[slot], instance, mode)

    def _receive(self, hooks: PumpHooks) -> None:
        began = self._clock()
        reports = self._device.poll(POLL_S)
        now = self._clock()
        if reports:
            self._hand_over(reports, hooks)
            self._progress_at, self._hurried = now, 0
        else:
            # A device that will not wait, time after time, has nothing to do: something is missing.
            self._hurried = self._hurried + 1 if now - began < POLL_S / 2 else 0
            if self._hurried >= _HURRIED or now - self._progress_at > STALL_S:
                self._look_into_it(hooks, now)
        if now - self._tick_at >= _TICK_S:
            self._tick_at = now
            hooks.tick()
        hooks.turn()

    def _hand_over(self, reports: list[Report], hooks: PumpHooks) -> None:
        aside, before = self._aside, len(self._held)
        for report in reports:
            if aside is not None and report.slot in aside.pump._generation:
                aside.report(aside.pump._take(report), report)
                self._own_lead = 0
            else:
                hooks.report(self._take(report), report)
        if len(self._held) != before:
            self._aside_lead = 0
            hooks.keys(len(self._held))

    def _take(self, report: Report) -> Instance:
        instance = self._held.pop(report.slot, None)
        expected = self._generation.get(report.slot)
        if instance is None or report.generation != expected:
            held = f"generation {expected}" if instance is not None else "nothing in flight"
            raise ExecutionError(
                f"the device reports instance {report.number}, generation {report.generation} of slot "
                f"{report.slot}, which holds {held}; it retires instances twice, or late"
            )
        self._free.append(report.slot)
        return instance

    def _look_into_it(self, hooks: PumpHooks, now: float) -> None:
        """Nothing has retired for long: unless messages still move, let the device say what it waits for."""
        self._progress_at, self._hurried = now, 0
        moved = hooks.moved() if hooks.moved is not None else self._moved
        if moved != self._moved:
            self._moved = moved
            return
        reports = self._device.drain()
        if reports:
            self._hand_over(reports, hooks)
            return
        everything = self._everything()
        held = ", ".join(f"{i.number} in slot {s}" for s, i in sorted(everything.items())[:5])
        raise ExecutionError(
            f"the device is stuck: no message moves while {len(everything)} instances are in flight "
            f"(instance {held}). Run the same instances on the device 'reference', which names the node that "
            "waits"
        )
