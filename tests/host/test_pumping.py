"""The pump keeps slots filled, takes back what retires, and says so when nothing does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from amphw.host import pumping
from amphw.host.null_device import NullDevice
from amphw.host.pumping import Aside, Pump, PumpHooks
from amphw.ir.device import DeviceOptions, Mode, Report
from amphw.ir.errors import ExecutionError
from amphw.ir.instance import Instance
from tests.host.training import MODEL, ToyConfig


class Slow(NullDevice):
    """Retires one instance a poll, the oldest first; keeps a record of calls."""

    def __init__(self, clock: list[float] | None = None, wait: float = 0.0) -> None:
        self.load(MODEL.graph(ToyConfig()), {}, DeviceOptions())
        self.calls: list[str] = []
        self.clock, self.wait = clock if clock is not None else [0.0], wait

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        super().submit(slot, generation, instance, mode)
        self.calls.append(f"submit {instance.number}")

    def poll(self, timeout: float = 0.0) -> list[Report]:
        self.clock[0] += self.wait
        if not self._retired:
            return []
        return [self._retired.pop(next(iter(self._retired)))]

    def update(self, nodes: Any = None) -> None:
        self.calls.append("update")


class Stuck(Slow):
    """Retires nothing; `brings` is what a drain brings."""

    brings: tuple[int, ...] = ()

    def poll(self, timeout: float = 0.0) -> list[Report]:
        self.clock[0] += self.wait
        return []

    def drain(self) -> list[Report]:
        self.calls.append("drain")
        return [self._retired.pop(slot) for slot in self.brings]


def numbered(n: int) -> list[Instance]:
    return [Instance(number=i) for i in range(n)]


def hooks(**more: Any) -> tuple[PumpHooks, list[int], list[int]]:
    """Hooks, the numbers of what retired, and the counts of what was in flight."""
    retired: list[int] = []
    keys: list[int] = []
    return PumpHooks(lambda i, r: retired.append(i.number), keys.append, **more), retired, keys


def test_slots_are_kept_filled_and_everything_comes_back() -> None:
    told, retired, keys = hooks()
    pump = Pump(Slow(), first=4, count=3)
    assert pump.run(numbered(7), Mode.TRAIN, told) == 7
    assert retired == list(range(7)) and pump.in_flight == 0
    assert max(keys) == 3 and keys[-1] == 0
    assert keys[:5] == [1, 2, 3, 2, 3]


def test_a_window_is_narrower_than_the_slots() -> None:
    told, _, keys = hooks()
    Pump(Slow(), 0, 8).run(numbered(9), Mode.TRAIN, told, window=2)
    assert max(keys) == 2


@pytest.mark.parametrize("barrier", [False, True])
def test_a_window_is_no_wider_than_the_slots(barrier: bool) -> None:
    told, retired, keys = hooks()
    device = Slow()
    assert Pump(device, 0, 3).run(numbered(7), Mode.TRAIN, told, window=9, barrier=barrier) == 7
    assert sorted(retired) == list(range(7)) and max(keys) == 3
    assert device.calls.count("update") == (3 if barrier else 0)


def test_a_barrier_returns_whole_windows_and_updates_after_each() -> None:
    device = Slow()
    Pump(device, 0, 2).run(numbered(5), Mode.TRAIN, hooks()[0], barrier=True)
    expected = ["submit 0", "submit 1", "update", "submit 2", "submit 3", "update", "submit 4", "update"]
    assert device.calls == expected


def test_nothing_to_pump() -> None:
    device = Slow()
    assert Pump(device, 0, 2).run([], Mode.TRAIN, hooks()[0], barrier=True) == 0
    assert device.calls == []


def test_the_policy_holds_back() -> None:
    class Two:
        def admits(self, in_flight: int) -> bool:
            return in_flight < 2

    told, _, keys = hooks()
    Pump(Slow(), 0, 8).run(numbered(6), Mode.TRAIN, told, policy=Two())
    assert max(keys) == 2


def test_a_stop_brings_back_what_is_in_flight() -> None:
    told, retired, _ = hooks()
    pump = Pump(Slow(), 0, 3)
    assert pump.run(numbered(9), Mode.TRAIN, told, stopped=lambda: len(retired) >= 2) == 4
    assert retired == [0, 1, 2, 3] and pump.in_flight == 0
    assert pump.run(numbered(2), Mode.TRAIN, told, stopped=lambda: True) == 0


def test_instances_are_built_one_ahead_and_no_further() -> None:
    device = Slow()
    built: list[int] = []

    def source() -> Any:
        for instance in numbered(5):
            built.append(instance.number)
            yield instance

    Pump(device, 0, 1).run(source(), Mode.TRAIN, hooks()[0], stopped=lambda: len(device.calls) >= 2)
    assert device.calls == ["submit 0", "submit 1"] and built == [0, 1, 2]


def test_ticks_come_five_times_a_second() -> None:
    clock = [0.0]
    ticks: list[float] = []
    told = PumpHooks(lambda i, r: None, tick=lambda: ticks.append(clock[0]))
    Pump(Slow(clock, wait=0.06), 0, 1, clock=lambda: clock[0]).run(numbered(20), Mode.TRAIN, told)
    assert ticks == pytest.approx([0.24, 0.48, 0.72, 0.96, 1.2]), "at the first poll after 0.2 s"


def test_a_report_for_an_empty_slot_is_an_error() -> None:
    class Twice(Slow):
        def poll(self, timeout: float = 0.0) -> list[Report]:
            return super().poll() * 2

    with pytest.raises(ExecutionError, match="instance 0, generation 1 of slot 0, which holds nothing in fl"):
        Pump(Twice(), 0, 1).run(numbered(2), Mode.TRAIN, hooks()[0])


def test_a_device_that_will_not_wait_is_drained_for_its_own_words() -> None:
    class Explains(Stuck):
        def drain(self) -> list[Report]:
            raise ExecutionError("node 'cat' waits for instance 0")

    with pytest.raises(ExecutionError, match="node 'cat' waits for instance 0"):
        Pump(Explains(), 0, 2).run(numbered(2), Mode.TRAIN, hooks()[0])


def test_a_drain_that_brings_the_instances_back_is_no_error() -> None:
    device = Stuck()
    device.brings = (0, 1)
    told, retired, _ = hooks()
    assert Pump(device, 0, 2).run(numbered(2), Mode.TRAIN, told) == 2
    assert retired == [0, 1] and device.calls.count("drain") == 1


def test_a_device_without_words_of_its_own_is_stuck() -> None:
    clock = [0.0]
    device = Stuck(clock, wait=pumping.POLL_S)
    with pytest.raises(
        ExecutionError, match=r"stuck: no message moves while 2 .*\(instance 0 in slot 0, 1 in s"
    ):
        Pump(device, 0, 2, clock=lambda: clock[0]).run(numbered(2), Mode.TRAIN, hooks()[0])
    assert clock[0] > pumping.STALL_S


def test_a_long_instance_is_not_stuck_while_its_messages_move() -> None:
    clock = [0.0]

    class Long(Slow):
        def poll(self, timeout: float = 0.0) -> list[Report]:
            clock[0] += 1.0
            return super().poll() if clock[0] > 10 * pumping.STALL_S else []

    told, retired, _ = hooks(moved=lambda: int(clock[0]))
    Pump(Long(), 0, 1, clock=lambda: clock[0]).run(numbered(1), Mode.TRAIN, told)
    assert retired == [0]


# --- beside ---------------------------------------------------------------------------------------


class Newest(Slow):
    """Retires what was submitted last: the order that would let an aside hold up everything else."""

    def poll(self, timeout: float = 0.0) -> list[Report]:
        return [self._retired.popitem()[1]] if self._retired else []


def endless(first: int = 100) -> Iterator[Instance]:
    return (Instance(number=n) for n in count(first))


def beside(device: Any, keys: int, instances: Iterator[Instance] | None = None) -> tuple[Aside, list[int]]:
    """An aside in the slots 8 to 11, and the numbers of its instances that retired."""
    retired: list[int] = []
    pump = Pump(device, 8, 4)
    return Aside(
        pump, instances or endless(), Mode.INFER, keys, lambda i, r: retired.append(i.number)
    ), retired


def submitted(device: Slow) -> list[int]:
    return [int(call.split()[1]) for call in device.calls if call != "update"]


def test_reports_go_to_the_stream_that_their_slot_belongs_to() -> None:
    device = Slow()
    told, retired, keys = hooks()
    aside, aside_retired = beside(device, keys=2)
    assert Pump(device, 0, 3).run(numbered(12), Mode.TRAIN, told, aside=aside) == 12
    assert sorted(retired) == list(range(12))
    assert aside_retired == list(range(100, 100 + len(aside_retired))) and len(aside_retired) > 2
    assert set(submitted(device)) == {*retired, *aside_retired}, "everything submitted has come back"
    assert max(keys) == 3 and keys[-1] == 0, "the aside's instances are not counted"
    assert aside.pump.in_flight == 0


def test_the_aside_is_kept_filled_and_no_more_once_the_instances_run_out() -> None:
    device = Slow()
    aside, aside_retired = beside(device, keys=9)
    Pump(device, 0, 1).run(numbered(3), Mode.TRAIN, hooks()[0], aside=aside)
    assert submitted(device)[:6] == [0, 100, 101, 102, 103, 1], "as many keys as there are slots"
    assert submitted(device)[-1] == 2, "the last instance is in: no refill"
    assert aside_retired == submitted(device)[1:5] + submitted(device)[6:-1]


def test_a_stop_drains_both() -> None:
    device = Slow()
    told, retired, _ = hooks()
    aside, aside_retired = beside(device, keys=2)
    pump = Pump(device, 0, 2)
    assert pump.run(numbered(99), Mode.TRAIN, told, stopped=lambda: len(retired) >= 3, aside=aside) == 4
    assert pump.in_flight == 0 == aside.pump.in_flight
    assert sorted([*retired, *aside_retired]) == sorted(submitted(device))


def test_an_aside_that_runs_out_holds_nothing_up() -> None:
    device = Slow()
    aside, aside_retired = beside(device, 4, iter([Instance(number=100)]))
    assert Pump(device, 0, 2).run(numbered(5), Mode.TRAIN, hooks()[0], aside=aside) == 5
    assert aside_retired == [100]
    assert Pump(device, 0, 2).run([], Mode.TRAIN, hooks()[0], aside=beside(device, 4)[0]) == 0


def test_a_window_closes_whatever_runs_beside() -> None:
    device = Slow()
    aside, _ = beside(device, keys=1)
    Pump(device, 0, 2).run(numbered(4), Mode.TRAIN, hooks()[0], barrier=True, aside=aside)
    own = [call for call in device.calls if call == "update" or int(call.split()[1]) < 100]
    assert own == ["submit 0", "submit 1", "update", "submit 2", "submit 3", "update"]


def test_the_aside_cannot_hold_up_the_rest_for_ever() -> None:
    device = Newest()
    told, retired, _ = hooks()
    aside, aside_retired = beside(device, keys=2)
    assert Pump(device, 0, 1).run(numbered(3), Mode.TRAIN, told, aside=aside) == 3
    assert retired == [0, 1, 2]
    assert len(aside_retired) == 2 * 2 * pumping._LEAD, "none beside the last instance"


class OwnFirst(Slow):
    """Retires nothing of the aside for as long as there is anything else."""

    def poll(self, timeout: float = 0.0) -> list[Report]:
        return [self._retired.pop(min(self._retired))] if self._retired else []


def test_the_rest_cannot_hold_up_the_aside_for_ever() -> None:
    device = OwnFirst()
    told, retired, keys = hooks()
    aside, aside_retired = beside(device, keys=1)
    assert Pump(device, 0, 2).run(numbered(40), Mode.TRAIN, told, aside=aside) == 40
    assert sorted(retired) == list(range(40)) and max(keys) == 2
    assert len(aside_retired) >= 40 // (2 * pumping._LEAD + 2)


def test_the_aside_cuts_no_window_short() -> None:
    device = OwnFirst()
    aside, aside_retired = beside(device, keys=1)
    Pump(device, 0, 3).run(numbered(36), Mode.TRAIN, hooks()[0], barrier=True, aside=aside)
    own = [call for call in device.calls if call == "update" or int(call.split()[1]) < 100]
    assert [i for i, call in enumerate(own) if call == "update"] == list(range(3, 48, 4))
    assert len(aside_retired) > 1


def test_a_stuck_aside_is_named() -> None:
    clock = [0.0]
    device = Stuck(clock, wait=pumping.POLL_S)
    aside, _ = beside(device, keys=1)
    with pytest.raises(ExecutionError, match=r"while 2 instances .*\(instance 0 in slot 0, 100 in slot 8\)"):
        Pump(device, 0, 1, clock=lambda: clock[0]).run(numbered(2), Mode.TRAIN, hooks()[0], aside=aside)


def test_a_report_of_an_earlier_occupant_aside_is_an_error() -> None:
    class Twice(Slow):
        def poll(self, timeout: float = 0.0) -> list[Report]:
            reports = super().poll()
            return reports * 2 if reports and reports[0].mode is Mode.INFER else reports

    device = Twice()
    with pytest.raises(ExecutionError, match="instance 100, generation 1 of slot 8, which holds nothing in"):
        Pump(device, 0, 1).run(numbered(3), Mode.TRAIN, hooks()[0], aside=beside(device, 1)[0])
