"""What a run is going to need in memory, told before it begins.

A device reserves the rows of every message that an instance can produce before it takes the instance (the
reservation rule), so the memory of a run follows from its largest instances and the numbers of keys, of those
that train and of those that infer. A slot keeps what it reserved, so the two add up.
"""

from __future__ import annotations

from amphw.host.replication import Share
from amphw.host.run_model import InstanceSet
from amphw.ir.device import Device, Mode

_LOOKED_AT = 1000
"""Instances that are planned; a run with more of them may meet a larger one later, and grows then."""


def planned_memory(
    device: Device, training: InstanceSet, keys: int, validation: InstanceSet, infer_keys: int
) -> str | None:
    """One line for the user; None where the device does not plan its memory, or reserves none.

    keys: instances in flight that train. infer_keys: slots of validation, those of `train.live_valid` among
    them; no more of them are ever used than there are validation instances.
    """
    train = _largest(device, training, Mode.TRAIN)
    infer = _largest(device, validation, Mode.INFER)
    if not train or infer is None:
        return None
    infer_keys = min(infer_keys, len(validation))
    count = min(len(training), _LOOKED_AT)
    parameters = sum(
        v.nbytes * (2 + len(p.slots.get(n, ())))
        for p in device.parameters().values()
        for n, v in p.values.items()
    )
    which = "all" if count == len(training) else f"the first {count:,}"
    return (
        f"memory: {keys} active keys x {_size(train)} + {infer_keys} infer keys x {_size(infer)} = "
        f"{_size(keys * train + infer_keys * infer)} (the largest of {which} instances), "
        f"parameters with gradients and optimiser {_size(parameters)}"
    )


def _largest(device: Device, instances: InstanceSet, mode: Mode) -> int | None:
    """Bytes that the largest of the instances looked at reserves; None where the device does not plan."""
    largest = 0
    for instance in Share(instances, range(min(len(instances), _LOOKED_AT))):
        planned = device.planned_bytes(instance, mode)
        if planned is None:
            return None
        largest = max(largest, planned)
    return largest


def _size(n: float) -> str:
    for unit in ("B", "kB", "MB"):
        if n < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} GB"
