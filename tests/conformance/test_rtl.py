"""The generated hardware, simulated, against the model of its arithmetic: every message, every bit.

The hardware's log says in which order it ran what; replayed on the model, each firing must write the same
words, each loss be the same number, and the parameters end up the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from amphw.host.config import resolve
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from amphw.models import get_model
from amphw.rtl.driver.verilator import VerilatorDevice
from sim.replay import SEED, assert_as_model, drive
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


@pytest.mark.parametrize("name", sorted({c.name for c in CASES} - set(MAPPED)))
def test_refused(name: str) -> None:
    """What the hardware cannot run is said by name, before anything is built."""
    from amphw.ir.errors import GraphError
    from amphw.rtl.numbers.formats import Formats
    from amphw.rtl.plan.hardware import Sizes, hardware_plan

    with pytest.raises(GraphError, match=r"node '.*': the hardware"):
        hardware_plan(case(name).build(), {"*": UpdateRule()}, Formats(), Sizes())
