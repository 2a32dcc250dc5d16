"""Every graph that the hardware can run, in its arithmetic: near the reference, and always the same bits.

How near: nothing saturates here, so each number that is rounded is off by half a step at most, and the
errors are as good as independent; N of them together have a standard deviation of sqrt(N / 12) steps. The
graphs are small and their losses change by about as much as what they come from, so sqrt(N) steps, more than
three standard deviations, bound the error of losses and of summed gradients. The weights of both sides are
those that the hardware sees.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from amphw.ir.device import Mode
from amphw.ir.errors import GraphError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.start import starting_at
from amphw.ir.update import UpdateRule, initial_parameters
from amphw.rtl.fixed.device import FixedDevice
from amphw.rtl.numbers.formats import Format
from tests.conformance.harness import Outcome, run
from tests.graphs.cases import CASES, Case, each_case

FORMATS = "q3.13,g=q3.13"
STEP = 2.0**-13
SEED = 3

REFUSED = {
    "rnn-alternate": "dropout", "rnn-hash": "dropout", "fe-translator": "dropout", "fe-tree": "dropout",
    "decide": "exp", "decide-store": "exp", "fe-experts": "exp", "fe-sampled": "log",
    "fe-convolution": "patches", "fe-film": "patches", "fe-tied": "matmul_t", "fe-autoencoder": "matmul_t",
    "fe-skip": "div", "fe-network-mean": "div", "fe-network-max": "div", "fe-pointer": "div",
    "fe-weighted": "div", "fe-nested": "div", "fe-skipping": "div", "fe-functions": "div",
    "fe-decoder": "exp", "fe-sampling": "uniform", "fe-hops": "exp",
}  # fmt: skip
"""What the hardware lacks for a graph."""

each = each_case([c for c in CASES if c.name not in REFUSED])


@cache
def problem(case: Case) -> tuple[Graph, list[Instance]]:
    """Ten instances or so; parameters start at numbers that the visible weights have."""
    graph = case.build()
    instances = [i for seed in range(2) for i in case.instances(seed)]
    for number, instance in enumerate(instances):
        instance.number = number
    owners = {n: graph.nodes[n].params for n in graph.parameterised}
    f = Format(13)
    start = {
        node: {name: f.real(f.quantise(value)) for name, value in p.values.items()}
        for node, p in initial_parameters(owners, {}, SEED).items()
    }
    return starting_at(graph, start), instances


def fixed(case: Case, device: FixedDevice | None = None, **options: Any) -> Outcome:
    device = device or FixedDevice(FORMATS)
    try:
        return run(device, *problem(case), seed=SEED, **options)
    finally:
        device.close()


def steps_allowed(device: FixedDevice) -> float:
    used = device.arithmetic.meters.used
    assert not [m.name for m in used if m.saturated]
    return float(np.sqrt(sum(m.count for m in used if m.kind in ("value", "gradient"))))


@each
def test_losses_and_gradients_are_near_the_reference(case: Case) -> None:
    device = FixedDevice(FORMATS)
    found = fixed(case, device, keys=4)
    expected = run(ReferenceDevice("fifo", np.float64), *problem(case), keys=4, seed=SEED)
    allowed = steps_allowed(device) * STEP
    assert found.forward == found.backward > 0
    assert found.losses == pytest.approx(expected.losses, abs=allowed)
    for name, g in expected.gradients.items():
        assert np.abs(found.gradients[name] - g).max() <= allowed, name
        assert np.linalg.norm(found.gradients[name] - g) <= 0.02 * max(np.linalg.norm(g), allowed), name


@each
def test_inference_gives_the_losses_of_training_and_returns_nothing(case: Case) -> None:
    found = fixed(case, mode=Mode.INFER, keys=4)
    assert found.losses == fixed(case, keys=4).losses
    assert found.forward == found.backward == 0
    assert all(not g.any() for g in found.gradients.values())


@each
def test_the_order_of_service_does_not_matter_where_nothing_saturates(case: Case) -> None:
    first = fixed(case, keys=1, frame_cap=1)
    for options in ({"keys": 8, "policy": "largest-queue"}, {"keys": 5, "frame_cap": 3, "policy": "fifo"}):
        again = fixed(case, **options)
        assert again.losses == first.losses
        for name, g in first.gradients.items():
            np.testing.assert_array_equal(again.gradients[name], g, err_msg=name)


@each
@pytest.mark.parametrize("formats", [FORMATS, "q3.13,g=q4.12,round=stochastic"])
def test_a_replayed_log_gives_the_same_bits(case: Case, formats: str) -> None:
    options = {
        "updates": "self",
        "rule": UpdateRule(interval=7, optimizer="momentum", lr=0.02),
        "frame_cap": 5,
    }
    device = FixedDevice(formats)
    first = fixed(case, device, keys=8, log=True, **options)
    second = fixed(case, FixedDevice(formats, replay=device.log), keys=8, **options)
    assert first.losses == second.losses
    for name, value in first.parameters.items():
        np.testing.assert_array_equal(value, second.parameters[name], err_msg=name)


@each_case([c for c in CASES if c.name in REFUSED])
def test_what_cannot_be_mapped_is_refused_by_name(case: Case) -> None:
    with pytest.raises(GraphError, match=f"node '.*': the hardware cannot compute '{REFUSED[case.name]}': "):
        FixedDevice(FORMATS).check(case.build(), {})
