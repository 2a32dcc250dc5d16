"""The models' gradients are those that PyTorch's autograd found for an independent implementation.

The same parameters, 50 instances of the real data sets; see `record.py`.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.models import MODELS
from tests.conformance.harness import Outcome, reference, run
from tests.daily import daily
from tests.gradients import recorded
from tests.gradients.recorded import Recorded, furthest

TOLERANCE = 1e-4  # of the norm of a parameter's gradient, and of the loss

SMALL = ("tree-lstm", "list-reduction")
each = pytest.mark.parametrize("name", daily(SMALL, sorted({*recorded.names()} - {*SMALL})))
load = cache(recorded.load)


def compare(found: Outcome, expected: Recorded) -> None:
    assert sum(found.losses.values()) == pytest.approx(expected.loss, rel=TOLERANCE)
    worst, off = furthest(found.gradients, expected.gradients)
    assert off <= TOLERANCE, f"gradient of {worst}: off by {off:.2g} from {expected.by}"


def test_every_model_is_recorded() -> None:
    missing = MODELS.keys() - {load(name).model for name in recorded.names()}
    assert not missing, f"no gradients of {sorted(missing)}: write them down in models.py, and run record.py"


@each
def test_gradients_of_the_reference(name: str) -> None:
    r = load(name)
    assert len(r.instances) == 50
    compare(reference(r.graph(), r.instances), r)


@each
@pytest.mark.parametrize("keys,workers", [(1, 1), (16, 2)])
def test_gradients_of_the_cpu_device(name: str, keys: int, workers: int, plane: str) -> None:
    r, device = load(name), CpuDevice()
    try:
        compare(run(device, r.graph(), r.instances, keys=keys, workers=workers), r)
    finally:
        device.close()


@each
def test_every_parameter_counts(name: str) -> None:
    """None has a gradient so small that the comparison would not see it vanish."""
    r = load(name)
    for key, g in r.gradients.items():
        assert np.abs(g).max() > 1e-3 * r.loss / len(r.instances), key
        wrong = r.gradients | {key: g * np.float32(1.001)}
        assert furthest(wrong, r.gradients)[0] == key
        assert furthest(wrong, r.gradients)[1] > TOLERANCE
