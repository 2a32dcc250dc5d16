"""What a run is told to need in memory."""

from __future__ import annotations

from amphw.host.memory import planned_memory
from amphw.host.null_device import NullDevice
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from tests.host.training import MODEL, ToyConfig

TRAINING, VALIDATION = (MODEL.training(ToyConfig(), 0, 1, n) for n in (90, 40))


class Planning(NullDevice):
    """Reserves so many bytes for an instance of each mode; None: does not plan."""

    def __init__(self, train: int | None, infer: int | None = None) -> None:
        self.bytes = {Mode.TRAIN: train, Mode.INFER: infer}
        self.load(MODEL.graph(ToyConfig()), {"*": UpdateRule()}, DeviceOptions())

    def planned_bytes(self, instance: Instance, mode: Mode) -> int | None:
        return self.bytes[mode]


def told(device: NullDevice, infer_keys: int = 3) -> str | None:
    return planned_memory(device, TRAINING, 16, VALIDATION, infer_keys)


def test_slots_of_both_kinds_add_up() -> None:
    assert told(Planning(2000, 500)) == (
        "memory: 16 active keys x 2 kB + 3 infer keys x 500 B = 33.5 kB (the largest of all instances), "
        "parameters with gradients and optimiser 472 B"
    )


def test_there_are_no_more_infer_keys_than_validation_instances() -> None:
    line = told(Planning(2000, 500), infer_keys=16)
    assert line is not None and f" {len(VALIDATION)} infer keys x 500 B" in line


def test_without_a_plan_or_a_reservation_nothing_is_told() -> None:
    assert told(Planning(None)) is None
    assert told(Planning(0, 0)) is None
