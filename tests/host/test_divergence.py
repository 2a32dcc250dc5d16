"""An explosion of the kind that recurrent networks have, on devices that round and order differently.

The state is multiplied by one weight ten times, and should stay 1. Near 1 the loss has a curvature of 200 in
that weight, so a step of 0.05 overshoots tenfold each time: from a quiet start gradients grow by a factor,
then by a power. That is so whatever the device rounds to, so the test needs no luck.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.cpu_runtime.device import CpuDevice
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.host.divergence import Approach, DivergedError
from amphw.ir.device import Mode, Report
from amphw.ir.reference import ReferenceDevice
from amphw.models.plain import NoSettings, PlainModel
from amphw.rtl.fixed.device import FixedDevice

STEPS = 10


class Cliff(PlainModel[NoSettings]):
    name, summary, config = "cliff", "a state that is multiplied by a weight, again and again", NoSettings
    defaults = {
        "train": {"epochs": 1, "max_active_keys": 1, "trace": False},
        "update": {"optimizer": "sgd", "lr": 0.05, "min_update_interval": STEPS, "reduce": "sum"},
        "device": {"workers": 1},
    }

    def write(self, cfg: NoSettings) -> Any:
        grow = fe.Layer(lambda p, h: h @ p.w, lambda width: {"w": fe.parameter((1, 1), np.array([[0.999]]))})

        def model(x: Any) -> None:
            fe.regress(fe.fold(lambda h, _: grow(h), fe.constant(1, 1.0), x.steps), x.target)

        return model, fe.Record(steps=fe.Sequence(fe.Int(2), most=STEPS), target=fe.Floats(1))

    def data(self, cfg: NoSettings, seed: int, part: str) -> Any:
        return [{"steps": [0] * STEPS, "target": [1.0]} for _ in range(60)]


def trained(device: Any, *settings: str) -> list[float]:
    """The validation loss after every epoch."""
    model = Cliff()
    cfg = resolve(model.config, model.defaults, None, list(settings))
    summary = Trainer(model, cfg, device, None).run()
    return [record.valid["loss"] for record in summary.history]


def told(error: DivergedError) -> tuple[list[float], list[float]]:
    """The losses and the gradients that the error lists."""
    text = str(error)
    losses = re.search(r"the losses of the last \d instances were ([^;]*);", text)
    gradients = re.search(r"largest gradients in the last updates of each node were 'grow' ([^;]*);", text)
    assert losses is not None and gradients is not None, text
    return [float(x) for x in losses[1].split(",")], [float(x) for x in gradients[1].split(",")]


def test_an_explosion_is_told(plane: str) -> None:
    with pytest.raises(DivergedError, match="set update.clip") as e:
        trained(CpuDevice())
    losses, gradients = told(e.value)
    assert losses[0] < 1e-3 < 0.1 < losses[-1]
    assert gradients[0] < 0.5 < 10 < gradients[-1]


def test_the_reference_tells_it_too() -> None:
    with pytest.raises(DivergedError) as e:
        trained(ReferenceDevice())
    losses, gradients = told(e.value)
    assert losses[0] < 1e-3 < 0.1 < losses[-1] and gradients[0] < 0.5 < gradients[-1]


def test_clipping_prevents_it(plane: str) -> None:
    """Steps of 0.05 times 0.02 at most: the weight stays within 0.001 of where it belongs, or nearly."""
    (loss,) = trained(CpuDevice(), "clip=0.02")
    assert loss < 1e-3


def test_clipping_prevents_it_in_the_hardwares_arithmetic() -> None:
    """What explodes there saturates."""
    (unclipped,) = trained(FixedDevice("q6.10,g=q6.10"))
    (clipped,) = trained(FixedDevice("q6.10,g=q6.10"), "clip=0.02")
    assert clipped < 1e-2 < 0.5 < unclipped


def test_what_led_to_a_divergence() -> None:
    approach = Approach("loss")
    assert approach.told({}) == ""
    for number in range(10):
        approach.retired(Report(0, 0, number, Mode.TRAIN, {"loss": {"loss": 2.0**number}}, {"loss": 2}))
    gradients = {f"n{k}": [float(k), 10.0 * k] for k in range(6)} | {"still": []}
    assert approach.told(gradients) == (
        "the losses of the last 8 instances were 2, 4, 8, 16, 32, 64, 128, 256; the largest gradients in the "
        "last updates of each node were 'n5' 5, 50; 'n4' 4, 40; 'n3' 3, 30; 'n2' 2, 20"
    )


def test_nodes_whose_gradients_are_not_finite_come_first() -> None:
    """Whichever way a device says it."""
    gradients = {f"n{k}": [float(k)] for k in range(6)} | {"a": [0.3, math.nan], "b": [0.3, math.inf]}
    told = Approach("loss").told(gradients)
    assert told.endswith("were 'a' 0.3, nan; 'b' 0.3, inf; 'n5' 5; 'n4' 4")
