"""A short run of ranks in this process, whose parameters are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amphw.host.config import RunConfig, resolve
from amphw.host.controller import Trainer
from amphw.host.devices import make_device
from amphw.host.run_model import RunModel
from amphw.host.session import Session
from amphw.ir.device import Device
from amphw.ir.reference import ReferenceDevice
from amphw.models import get_model
from amphw.replicas.replica import Synchronised
from amphw.replicas.run import check_ranks, follow, in_threads, replica

Values = dict[str, np.ndarray]
"""Parameters by NODE.NAME."""

MakeDevice = Callable[[], Device]


def reference64() -> Device:
    return ReferenceDevice(dtype=np.float64)


def engine() -> Device:
    return make_device("cpu")


@dataclass(frozen=True)
class Trained:
    """values: of the first rank, at the end. averaged: `train.average`, where there is one."""

    values: Values
    averaged: Values
    synchronised: Synchronised | None


def configured(name: str, settings: Sequence[str], window: int) -> tuple[RunModel, RunConfig[Any]]:
    """A model and its configuration: one epoch in mode pipeline, with windows of so many instances."""
    model = get_model(name)
    common = ["train.mode=pipeline", f"pipeline_depth={window}", "epochs=1", "target=none", "trace=false"]
    cfg = resolve(model.config, model.defaults, None, [*common, "workers=1", "sparse_from=0", *settings])
    return model, cfg


def begun(model: RunModel, cfg: RunConfig[Any], make: MakeDevice) -> Values:
    """What training begins with."""
    device = make()
    try:
        Session(model, cfg, device)
        return _values(device)
    finally:
        device.close()


def trained(model: RunModel, cfg: RunConfig[Any], ranks: int, make: MakeDevice) -> Trained:
    """Train an epoch. With several ranks these are threads."""
    if ranks == 1:
        return _led(model, cfg, make, None)
    check_ranks(ranks, cfg)
    with in_threads(ranks, lambda t: follow(model, cfg, make(), t)) as first:
        return _led(model, cfg, make, replica(first, cfg))


def _led(model: RunModel, cfg: RunConfig[Any], make: MakeDevice, mine: Any) -> Trained:
    device = make()
    try:
        trainer = (
            Trainer(model, cfg, device, None, replication=mine) if mine else Trainer(model, cfg, device, None)
        )
        trainer.run()
        found = mine.synchronised(trainer.spent.seconds.get("training", 0.0)) if mine else None
        average = trainer.state.average
        averaged = (
            {f"{n}.{k}": v for n, own in average.values.items() for k, v in own.items()} if average else {}
        )
        return Trained(_values(device), averaged, found)
    finally:
        device.close()


def _values(device: Device) -> Values:
    return {f"{n}.{k}": np.array(v) for n, p in device.parameters().items() for k, v in p.values.items()}
