"""What a device makes of messages that it must not take, and of graphs that disagree."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from amphw.host.config import DeviceConfig
from amphw.ir.config_fields import options
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import DeviceLostError, GraphError
from amphw.ir.update import UpdateRule
from amphw.rtl.driver.messages import Messages
from amphw.rtl.driver.verilator import VerilatorDevice
from amphw.rtl.isa.wire import Fault, Kind, pack
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.hardware import Sizes, hardware_plan
from tests.rtl.cases import SMALL, case, problem, rule

RULES = {"*": rule("tree-leaves")}
OPTIONS = DeviceOptions(4, 0, "self", 3, True, {"watch_writes": True, **SMALL})


@pytest.fixture
def device() -> Iterator[VerilatorDevice]:
    made = VerilatorDevice("q6.10,g=q4.12")
    made.load(case("tree-leaves").build(), RULES, OPTIONS)
    made.parameters()  # everything has been written
    yield made
    made.close()


def answers(device: VerilatorDevice, words: list[int]) -> list[dict[str, int]]:
    """What comes back for raw words."""
    assert device.link is not None
    messages, found = Messages(), []
    sent = np.array(words, np.uint16)
    for _ in range(20):
        accepted, came, _ = device.link.exchange(sent, 1000)
        sent = sent[accepted:]
        found += [header for header, _ in messages.add(came)]
    assert not len(sent)
    return found


@pytest.mark.thorough
def test_bad_messages_are_dropped_and_reported(device: VerilatorDevice) -> None:
    unknown = [*pack(Kind(15), slot=1, words=3), 7, 7, 7]
    late = [*pack(Kind.FORWARD, slot=2, generation=9, firing=1, words=2), 1, 2]
    outside = [*pack(Kind.TABLE, payload=(1 << 12) - 1, words=2), 1, 2]
    beyond = pack(Kind.BEGIN, slot=200)
    got = answers(device, [*unknown, *late, *outside, *beyond])
    assert [h["kind"] for h in got] == [Kind.FAULT] * 4
    assert [h["output"] for h in got] == [Fault.UNKNOWN, Fault.LATE, Fault.OUTSIDE, Fault.OUTSIDE]
    assert [h["slot"] for h in got] == [1, 2, 0, 200]
    # It goes on as if nothing had been.
    _, instances = problem("tree-leaves")
    device.submit(0, 1, instances[0], Mode.TRAIN)
    assert [r.number for r in device.drain()] == [instances[0].number]


def test_an_instance_that_never_fits_is_refused() -> None:
    device = VerilatorDevice("q6.10,g=q4.12")
    device.load(case("tree-leaves").build(), RULES, OPTIONS)
    device._arenas[2].end = device._arenas[2].first + 10
    _, instances = problem("tree-leaves")
    with pytest.raises(
        DeviceLostError,
        match=r"instance \d+ does not fit .* \d+ words of its payload memory, which has 10 for",
    ) as error:
        device.submit(0, 1, instances[0], Mode.TRAIN)
    advised = set(re.findall(r"device\.(\w+)", str(error.value)))
    assert advised and advised <= set(options(DeviceConfig))  # settings that there are


def test_too_narrow_an_accumulator() -> None:
    from amphw.host.config import resolve
    from amphw.models import get_model

    model = get_model("list-reduction")
    cfg = resolve(model.config, model.defaults, None, ["model.hidden=512", "model.batch=1"])
    rules = {"*": UpdateRule(optimizer="sgd")}
    with pytest.raises(GraphError, match=r"node 'cell': .* bits, the accumulator has 39: give it acc=42"):
        hardware_plan(model.graph(cfg.model), rules, Formats(accumulator=39), Sizes())


def test_what_cannot_run_is_told_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that the hardware has no circuits for, and weights outside of their format."""

    def build(*_: object) -> None:
        raise AssertionError("nothing is to be built")

    monkeypatch.setattr(VerilatorDevice, "make_link", build)
    with pytest.raises(GraphError, match=r"node '.*': the hardware"):
        VerilatorDevice().check(case("fe-translator").build(), RULES)
    strict = DeviceOptions(4, 0, "self", 3, True, {"strict": True})
    with pytest.raises(GraphError, match=r"weights of '.*' lie outside q-2.18"):
        VerilatorDevice("q4.12,w=q-2.18").load(case("tree-leaves").build(), RULES, strict)


def test_nodes_that_a_device_cannot_have() -> None:
    graph = case("tree-leaves").build()
    able = [u.name for u in hardware_plan(graph, RULES, Formats(), Sizes()).partition.units]
    for nodes, text in (
        (["nowhere"], r"node 'nowhere': it is not in the graph; the hardware can have: "),
        ([next(n for n in graph.nodes if n not in able)], "it stays on the host"),
        ([], "no node is placed on the hardware"),
    ):
        with pytest.raises(GraphError, match=text):
            hardware_plan(graph, RULES, Formats(), Sizes(), nodes)
    plan = hardware_plan(graph, RULES, Formats(), Sizes(), able[:1])
    assert [u.name for u in plan.partition.units] == able[:1] and plan.elsewhere == able[1:]
