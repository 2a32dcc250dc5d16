"""The generated hardware, simulated, against the model of its arithmetic: every message, every bit.

The hardware's log says in which order it ran what; replayed on the model, each firing must write the same
words, each loss be the same number, and the parameters end up the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from amphw.host.config import resolve
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from amphw.models import get_model
from amphw.rtl.driver.verilator import VerilatorDevice
from sim.replay import SEED, assert_as_model, drive, written
from tests.daily import daily
from tests.graphs.cases import CASES
from tests.rtl.cases import MAPPED, QUICK, SMALL, case, problem, rule

pytest.importorskip("amaranth")


def assert_bit_identical(
    graph: Graph,
    instances: Sequence[Instance],
    formats: str,
    update: UpdateRule,
    *,
    keys: int = 4,
    mode: Mode = Mode.TRAIN,
    **sizes: int,
) -> int:
    """Run on the hardware, replay on the model -> messages compared."""
    for number, instance in enumerate(instances):
        instance.number = number
    hardware = VerilatorDevice(formats)
    hardware.load(
        graph, {"*": update}, DeviceOptions(keys, 0, "self", SEED, True, {"watch_writes": True, **sizes})
    )
    reports, _ = drive(hardware, instances, keys, mode)
    compared = assert_as_model(hardware, graph, {"*": update}, instances, reports, keys, mode)
    hardware.close()
    return compared


@pytest.mark.parametrize("name", daily(QUICK[:2], QUICK[2:]))
def test_every_message_is_that_of_the_model(name: str) -> None:
    graph, instances = problem(name)
    compared = assert_bit_identical(graph, instances, "q6.10,g=q4.12", rule(name), **SMALL)
    assert compared > 100


@pytest.mark.hardware
@pytest.mark.parametrize("name", [n for n in MAPPED if n not in QUICK])
def test_every_message_of_the_other_graphs(name: str) -> None:
    graph, instances = problem(name)
    assert_bit_identical(graph, instances, "q6.10,g=q4.12", rule(name), **SMALL)


def test_updates_that_are_rounded_at_random_are_those_of_the_model() -> None:
    """Every update of every parameter begins with a seed of its own, which the circuit computes itself."""
    graph, instances = problem("tree-leaves")
    formats = "q6.10,g=q4.12,round=stochastic"
    assert_bit_identical(graph, instances, formats, rule("tree-leaves"), **SMALL)


def test_inference_is_that_of_the_model() -> None:
    graph, instances = problem("tree-leaves")
    assert_bit_identical(graph, instances, "q6.10,g=q4.12", rule("tree-leaves"), mode=Mode.INFER, **SMALL)


@pytest.mark.thorough
def test_list_reduction_at_its_real_size() -> None:
    """The first 1,000 messages and more, hidden 32, with many keys in flight; most updates are clipped."""
    model = get_model("list-reduction")
    cfg = resolve(model.config, model.defaults, None, ["model.hidden=32", "model.batch=1"])
    data = model.training(cfg.model, 0, 1, 40)
    instances = [data[i] for i in range(40)]
    rule = UpdateRule(interval=50, lr=0.05, optimizer="momentum", clip=0.02)
    compared = assert_bit_identical(
        model.graph(cfg.model), instances, "q4.12", rule, keys=8, lanes=16, payload=1 << 15
    )
    assert compared >= 1000


def outcome(lanes: str, name: str, mode: Mode) -> dict[str, Any]:
    """All that can be seen of a run: what it did in which order, every word that it wrote, and its cycles."""
    graph, instances = problem(name)
    for number, instance in enumerate(instances):
        instance.number = number
    hardware = VerilatorDevice(f"q6.10,g=q4.12,lanes={lanes}")
    settings = {"watch_writes": True, **SMALL}
    hardware.load(graph, {"*": rule(name)}, DeviceOptions(4, 4, "self", SEED, True, settings))
    reports, _ = drive(hardware, instances, 4, mode)
    simulation = hardware.link.simulation  # type: ignore[union-attr]
    found = {
        "cycles": simulation.cycles,
        "counters": hardware.counters(),
        "log": hardware.log,
        "losses": [(r.number, r.sums) for r in reports],
        "words": written(hardware),
        "parameters": {
            f"{node}.{kind}.{key}": value
            for node, p in hardware.parameters().items()
            for kind, values in (("value", p.values), ("gradient", p.gradients))
            for key, value in values.items()
        },
    }
    hardware.close()
    return found


def assert_model_as_gates(name: str, mode: Mode = Mode.TRAIN) -> None:
    gates, model = outcome("gates", name, mode), outcome("model", name, mode)
    assert gates["counters"]["cycles"] > 1000 and gates["words"]
    for key in ("cycles", "counters", "log", "losses"):
        assert model[key] == gates[key], key
    for key in ("words", "parameters"):
        assert model[key].keys() == gates[key].keys()
        for which, value in gates[key].items():
            for got, want in zip(model[key][which], value, strict=True):
                assert got is want or np.array_equal(got, want), (key, which)


@pytest.mark.thorough
@pytest.mark.parametrize("name", QUICK)
def test_the_model_of_the_lanes_is_as_the_gates(name: str) -> None:
    """The same cycles, in all counters, and the same words."""
    assert_model_as_gates(name)


@pytest.mark.thorough
def test_the_model_of_the_lanes_infers_as_the_gates() -> None:
    assert_model_as_gates("tree-leaves", Mode.INFER)


@pytest.mark.hardware
@pytest.mark.parametrize("name", [n for n in MAPPED if n not in QUICK])
def test_the_model_of_the_lanes_on_the_other_graphs(name: str) -> None:
    assert_model_as_gates(name)


@pytest.mark.parametrize("name", sorted({c.name for c in CASES} - set(MAPPED)))
def test_refused(name: str) -> None:
    """What the hardware cannot run is said by name, before anything is built."""
    from amphw.ir.errors import GraphError
    from amphw.rtl.numbers.formats import Formats
    from amphw.rtl.plan.hardware import Sizes, hardware_plan

    with pytest.raises(GraphError, match=r"node '.*': the hardware"):
        hardware_plan(case(name).build(), {"*": UpdateRule()}, Formats(), Sizes())
