"""List reduction with some of its nodes on a device: how many bytes of messages cross over to it."""

from __future__ import annotations

from typing import Any

from amphw.ir.device import Device, DeviceOptions, Mode
from amphw.ir.update import UpdateRule
from amphw.mixed.device import MixedDevice
from amphw.models import get_model

HIDDEN, BATCH, INSTANCES = 8, 5, 12
MESSAGE = 4 * HIDDEN * BATCH
"""Bytes of a message between the nodes of the loop, and to and from it."""


def trained(part: Device, place: str, tokens: int, mode: Mode = Mode.TRAIN, **settings: Any) -> MixedDevice:
    """INSTANCES batches of sequences of so many tokens, with the device as `one`; it is closed again."""
    model = get_model("list-reduction")
    config = model.config(hidden=HIDDEN, batch=BATCH)
    every = model.training(config, 1, 0, 6000)
    found = [i for i in every if (i.attrs["length"], i.attrs["batch"]) == (tokens, BATCH)][:INSTANCES]
    assert len(found) == INSTANCES
    device = MixedDevice({"one": part})
    options = DeviceOptions(4, 4, "self", 3, settings={"place": place, **settings})
    device.load(model.graph(config), {"*": UpdateRule(interval=20, lr=0.01)}, options)
    try:
        for k, instance in enumerate(found):
            device.submit(k % 4, k // 4, instance, mode)
            if k % 4 == 3:
                device.drain()
    finally:
        device.close()
    return device
