"""Our side's loop: slots stay full, everything that goes in comes out, in a cycle."""

from __future__ import annotations

from amphw.host.null_device import NullDevice
from amphw.host.pump_loop import PumpLoop
from amphw.ir.device import Device, DeviceOptions, Mode, Report
from amphw.ir.instance import Instance


class Watched(NullDevice):
    """Notes what is submitted, and reports one instance at a time."""

    def load(self, *arguments) -> None:
        super().load(*arguments)
        self.numbers: list[int] = []
        self.most = 0

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        super().submit(slot, generation, instance, mode)
        self.numbers.append(instance.number)
        self.most = max(self.most, len(self._retired))

    def poll(self, timeout: float = 0.0) -> list[Report]:
        slot = next(iter(self._retired))
        return [self._retired.pop(slot)]

    def drain(self) -> list[Report]:
        return [self.poll()[0] for _ in list(self._retired)]


def loop(device: Device, instances: int, slots: range) -> PumpLoop:
    from amphw.models import get_model

    model = get_model("list-reduction")
    device.load(model.graph(model.config(hidden=2)), {}, DeviceOptions())
    all_ = [Instance(number=n) for n in range(instances)]
    return PumpLoop(device, all_, [10 * (n + 1) for n in range(instances)], slots, Mode.TRAIN)


def test_instances_go_round_and_slots_stay_full() -> None:
    device = Watched()
    loop(device, 3, range(2)).run_to([7])
    assert device.numbers == [0, 1, 2, 0, 1, 2, 0]
    assert device.most == 2 and not device._retired


def test_a_second_run_goes_on_where_the_first_ended() -> None:
    device = Watched()
    pump = loop(device, 3, range(4, 6))
    pump.run_to([2])
    pump.run_to([2])
    assert device.numbers == [0, 1, 2, 0]


def test_a_round_takes_all_reports_and_fills_all_slots() -> None:
    """It polls once, when the device has done all."""
    happened: list[str] = []

    class Slow(NullDevice):
        def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
            super().submit(slot, generation, instance, mode)
            happened.append("submit")

        def poll(self, timeout: float = 0.0) -> list[Report]:
            happened.append(f"poll {timeout}")
            return super().poll(timeout)

    looks = 0

    def busy() -> bool:
        nonlocal looks
        looks += 1
        happened.append("look")
        return looks % 2 == 1

    spent = loop(Slow(), 5, range(3)).run_rounds(0.02, busy)
    one = ["submit"] * 3 + ["look", "look", "poll 0.0"]
    rounds = happened.count("look") // 2
    assert happened[: 6 * rounds] == one * rounds
    assert 1 <= len(spent) <= rounds <= len(spent) + 1 and all(us >= 0 for us in spent)


def test_counts_are_what_the_model_counts() -> None:
    device = Watched()
    told = loop(device, 3, range(2)).run(0.01)
    assert told["count"] == sum(10 * (n + 1) for n in device.numbers)
    assert told["seconds"] >= 0.01


def test_marks_are_told_when_they_are_reached() -> None:
    told: list[int] = []
    found = loop(Watched(), 3, range(2)).run_to([2, 5], lambda mark: told.append(mark["pumped"]))
    assert [mark["pumped"] for mark in found] == told == [2, 5]
    assert all(mark["memory"] > 0 for mark in found)
