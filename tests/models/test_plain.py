"""Models of plain data: what their predictions tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from amphw.models.plain import NoSettings, Part, PlainModel


class Points(PlainModel[NoSettings]):
    """From one number to three."""

    name, summary, config = "points", "three numbers of one", NoSettings

    def write(self, cfg: NoSettings) -> tuple[Callable[[Any], None], fe.Spec]:
        double = fe.Linear(3, bias=False, init=np.array([[1.0, 2.0, 3.0]]))

        def model(x: Any) -> None:
            fe.regress(double(x.a), x.b)

        return model, fe.Record(a=fe.Floats(1), b=fe.Floats(3))

    def data(self, cfg: NoSettings, seed: int, part: Part) -> Sequence[Any]:
        return [{"a": 2.0, "b": [0.0, 0.0, 0.0]}]


def test_a_prediction_of_several_numbers_is_told_whole() -> None:
    model, cfg = Points(), NoSettings()
    device = ReferenceDevice()
    device.load(model.graph(cfg), {"*": UpdateRule()}, DeviceOptions(updates="off"))
    instance = model.parse(cfg, '{"a": 2.0, "b": [0, 0, 0]}')
    device.submit(0, 0, instance, Mode.PREDICT)
    (report,) = device.drain()
    told = model.explain(cfg, instance, report)
    assert told["prediction"] == [pytest.approx([2.0, 4.0, 6.0])]
