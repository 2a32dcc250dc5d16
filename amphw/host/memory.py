"""What a run is going to need in memory, told before it begins.

A device reserves the rows of every message that an instance can produce before it takes the instance (the
reservation rule), so the memory of a run follows from its largest instance and the number of keys.
"""

from __future__ import annotations

from amphw.host.run_model import InstanceSet
from amphw.ir.device import Device, Mode

_LOOKED_AT = 1000
"""Instances that are planned; a run with more of them may meet a larger one later, and grows then."""


def planned_memory(device: Device, instances: InstanceSet, keys: int) -> str | None:
    """One line for the user; None where the device does not plan its memory."""
    largest = 0
    count = min(len(instances), _LOOKED_AT)
    for i in range(count):
        planned = device.planned_bytes(instances[i], Mode.TRAIN)
        if planned is None:
            return None
        largest = max(largest, planned)
    parameters = sum(
        v.nbytes * (2 + len(p.slots.get(n, ())))
        for p in device.parameters().values()
        for n, v in p.values.items()
    )
    which = "all" if count == len(instances) else f"the first {count:,}"
    return (
        f"memory: {keys} active keys x {_size(largest)} = {_size(keys * largest)} "
        f"(the largest of {which} instances), parameters with gradients and optimiser {_size(parameters)}"
    )


def _size(n: float) -> str:
    for unit in ("B", "kB", "MB"):
        if n < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} GB"
