"""Run a model of the frontend on the reference device, to compare what it computes with plain Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from amphw import frontend as fe
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule

Parameters = Mapping[str, Mapping[str, np.ndarray]]


def declared(spec: fe.Spec) -> fe.Compiled:
    """The specification with the least model that there is."""
    return fe.compile(lambda x: fe.loss(fe.Linear(1, name="any")(fe.constant(1, 1.0))), spec)


def computed(
    model: Callable[[Any], Any], spec: fe.Spec, plain: Any, name: str = "y"
) -> tuple[np.ndarray, Parameters]:
    """What `model` returns for one instance [rows, width], and the parameters it was computed with."""

    def with_loss(x: Any) -> None:
        y = model(x)
        fe.loss(fe.sum_columns(y), **{name: y})

    compiled = fe.compile(with_loss, spec)
    device = ReferenceDevice(dtype=np.float64)
    device.load(compiled.graph, {"*": UpdateRule()}, DeviceOptions(updates="off", seed=1))
    device.submit(0, 0, compiled.encode(plain), Mode.PREDICT)
    (report,) = device.drain()
    values = {n: p.values for n, p in device.parameters().items()}
    return report.outputs["loss"][name], values


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))
