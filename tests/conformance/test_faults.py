"""What the reference refuses while running, the CPU device refuses too: nothing is lost without a word."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.ir.device import Device, DeviceOptions, Mode
from amphw.ir.errors import ExecutionError, StateError
from amphw.ir.expr import Attr, Field, lift, table
from amphw.ir.functions import number, squared_error
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema, TableType
from amphw.ir.nodes import NPT, Loss, Source
from amphw.ir.program import trace
from amphw.ir.reference import ReferenceDevice
from amphw.ir.routing import Cond, Phi
from amphw.ir.state import StateType, state_field
from amphw.ir.update import UpdateRule

n = Field("n")
SIZE = Attr("size")
N = state_field("n", SIZE, 8)
SCHEMA = Schema(
    {"size": 8}, {"kind": TableType((SIZE,), lift(9)), "next": TableType((SIZE,), lift(9))}, {"x": 1}
)
DEVICES = {"reference": ReferenceDevice, "cpu": CpuDevice}


def graph(index_shift: int = 0) -> Graph:
    """Messages n go to one of two ports by kind[n]; the loss reads next[n + index_shift]."""
    g = Graph("faults", SCHEMA)
    g.add(Source("x", StateType((N,)), width=1, data="x"))
    g.add(NPT("work", trace(lambda x: x * 2.0, {"x": 1})))
    g.add(Cond("kind", table("kind")(n), ("a", "b")))
    g.add(Phi("merge"))
    loss = trace(lambda y: squared_error(y, number(y, table("next")(n + index_shift))), {"y": 1})
    g.add(Loss("loss", loss))
    g.connect("x", "work", "kind")
    g.connect("kind.a", "merge.a")
    g.connect("kind.b", "merge.b")
    g.connect("merge", "loss")
    return g


def run(device: Device, g: Graph, kinds: list[int], mode: Mode = Mode.TRAIN) -> float:
    size = len(kinds)
    tables = {"kind": np.array(kinds), "next": np.zeros(size, np.int64)}
    device.load(g, {"*": UpdateRule()}, DeviceOptions(1, 1))
    try:
        device.submit(0, 0, Instance({"size": size}, tables, {"x": np.ones((size, 1), np.float32)}), mode)
        (report,) = device.drain()
        return report.sums["loss"]["loss"]
    finally:
        device.close()


each = pytest.mark.parametrize("make", DEVICES.values(), ids=DEVICES)
pytestmark = pytest.mark.usefixtures("plane")


@each
def test_every_port_taken_is_no_fault(make: type) -> None:
    assert run(make(), graph(), [0, 1, 1, 0]) == pytest.approx(16.0)


@each
@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.INFER])
def test_a_message_that_no_port_takes(make: type, mode: Mode) -> None:
    with pytest.raises((StateError, ExecutionError), match="no out-port"):
        run(make(), graph(), [0, 5, 1], mode)


@each
def test_a_program_that_reads_outside_a_table(make: type) -> None:
    with pytest.raises(StateError, match="outside"):
        run(make(), graph(index_shift=1), [0, 1, 1])


@each
def test_a_choice_that_reads_outside_a_table(make: type) -> None:
    g = Graph("faults", SCHEMA)
    g.add(Source("x", StateType((N,)), width=1, data="x"))
    g.add(NPT("work", trace(lambda x: x * 2.0, {"x": 1})))
    g.add(Cond("kind", table("kind")(n + 1).eq(0)))
    g.add(Phi("merge", ("no", "yes")))
    g.add(Loss("loss", trace(lambda y: squared_error(y, y), {"y": 1})))
    g.connect("x", "work", "kind")
    g.connect("kind.no", "merge.no")
    g.connect("kind.yes", "merge.yes")
    g.connect("merge", "loss")
    with pytest.raises(StateError, match="outside"):
        run(make(), g, [0, 1, 1])
