"""Lowering: which paths remain between what computes, and what is known of units."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.engine.lowering.lower import Expand, Guard, Lowered, Path, lower
from amphw.ir.behaviour import StateMap
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import GraphError
from amphw.ir.expr import Attr, Const, Field, table
from amphw.ir.functions import sum_cols
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema, TableType
from amphw.ir.nodes import Loss, Source
from amphw.ir.passes import fuse
from amphw.ir.program import trace
from amphw.ir.routing import Cond, Isu, Phi
from amphw.ir.state import StateType, state_field
from amphw.ir.update import UpdateRule
from amphw.models.list_reduction import ListReductionConfig, ListReductionRNN
from tests.graphs import decide, message_passing, rnn

ListReduction = ListReductionRNN()


def described(lowered: Lowered) -> list[str]:
    """Every path in one line: ends, steps, key."""
    return [_line(lowered, p) for p in lowered.paths]


def _line(lowered: Lowered, p: Path) -> str:
    target = lowered.units[p.target]
    steps = [f"if {s.condition}" if isinstance(s, Guard) else f"for {s.name} < {s.extent}" for s in p.steps]
    key = [f"{name}={e}" for name, e in p.key]
    member = [f"at {p.member}"] if p.member is not None else []
    row = [f"row {p.by_row}"] if p.by_row is not None else []
    ends = f"{lowered.units[p.source].name} -> {target.name}.{target.operands[p.operand].port}"
    return ": ".join([ends, ", ".join([*steps, *key, *member, *row])])


def test_the_routes_of_a_recurrent_network() -> None:
    lowered = lower(fuse(ListReduction.graph(ListReductionConfig(hidden=6, embedding=4, batch=8))))
    assert sorted(described(lowered)) == [
        "cell -> cell.h: if t == length - 1 == 0, t=t + 1",
        "cell -> head.h: if t == length - 1 == 1",
        "h0 -> cell.h: t=0",
        "head -> loss.y: ",
        "start -> h0.x: ",
    ]


def test_sites_and_replicas_become_constants_and_guards() -> None:
    lines = described(lower(fuse(rnn.build())))
    assert "concat -> cell1.x: if t % 2 == 1, t=t, r=t % 2" in lines
    assert "squash -> head.h: site=1" in lines
    assert "head -> other_loss.y: if site == 1" in lines


def test_copies_rows_and_group_members() -> None:
    lines = described(lower(fuse(message_passing.build())))
    out = "for scatter.j < out_off[v + 1] - out_off[v], if type[scatter.j + out_off[v]] == 2"
    assert f"embed -> edge2.x: {out}, k=0, e=scatter.j + out_off[v]" in lines
    assert any(line.endswith("k=k, v=dst[e], at in_pos[e] - in_off[dst[e]]") for line in lines)
    lines = described(lower(fuse(decide.build(exit="store"))))
    assert "rows -> encode.x: for apart.b < batch, b=apart.b, row apart.b" in lines
    assert "times -> loss.y: b=b" in lines  # the exit keeps `b` and stores the decision


def test_paths_of_a_unit_are_in_the_order_of_its_ports() -> None:
    lowered = lower(rnn.build())
    for u in lowered.units:
        assert [p.index for p in u.out] == sorted(p.index for p in u.out)
        assert [lowered.paths[p.index] for p in u.out] == u.out
    split = lowered.units[lowered.by_name["split"]]
    assert [p.value for p in split.out] == [0]  # the other half ends in a Discard: no path, no gradient


def test_a_loop_that_only_routes_gets_a_unit_to_wait_in() -> None:
    k = Field("k")
    g = Graph("empty-loop", Schema(data={"x": 1}))
    g.add(Source("x", width=1, data="x"))
    with g.region("loop", "loop", "k"):
        g.add(Isu("enter", StateMap(add=((state_field("k", 3), Const(0)),))))
        g.add(Phi("phi"))
        g.add(Cond("last", k.eq(2)))
        g.add(Isu("next", StateMap(set={"k": k + 1})))
        g.add(Isu("leave", StateMap(drop={"k": None})))
    g.add(Loss("loss", trace(sum_cols, {"y": 1})))
    g.connect("x", "enter", "phi.a")
    g.connect("phi", "last")
    g.connect("last.no", "next", "phi.b")
    g.connect("last.yes", "leave", "loss")
    assert [u.name for u in lower(g).units] == ["x", "loss", "next_rest"]
    device, instance = CpuDevice(), Instance(data={"x": np.array([[2.5]], np.float32)})
    device.load(g, {"*": UpdateRule()}, DeviceOptions(updates="off"))
    try:
        device.submit(0, 0, instance, Mode.TRAIN)
        (report,) = device.drain()
    finally:
        device.close()
    assert report.sums["loss"]["loss"] == 2.5


def test_gradients_are_needed_only_downstream_of_parameters() -> None:
    lowered = lower(fuse(rnn.build()))
    wanted = {
        f"{u.name}.{o.port}": o.needs_gradient
        for u in lowered.units
        for o in u.operands
        if not o.needs_gradient
    }
    assert set(wanted) == {"h0.x", "embed.x"}
    by_name = {u.name: u for u in lowered.units}
    h0, concat = by_name["h0"].derivative, by_name["concat"].derivative
    assert h0 is not None and not h0.backward.outputs
    # The first operand of the loop comes from h0, which wants none; but others arrive at the same port.
    assert concat is not None and concat.wrt == (0, 1)
    encode = {u.name: u for u in lower(fuse(decide.build())).units}["encode"].derivative
    assert encode is not None and encode.wrt == () and encode.terms


def test_depth_grows_downstream_and_counts_a_loop_once() -> None:
    depth = {u.name: u.depth for u in lower(fuse(rnn.build())).units}
    chain = ["tokens", "embed", "concat", "cell0", "relu", "squash", "head", "loss"]
    assert [depth[name] for name in chain] == list(range(len(chain)))
    assert depth["start"] == 0 and depth["h0"] == 1


def test_what_plans_depend_on_is_listed() -> None:
    lowered = lower(fuse(message_passing.build()))
    found = " ".join(map(str, lowered.planning()))
    assert all(name in found for name in ("out_off", "in_off", "dst", "in_pos", "type", "nodes"))
    assert "label" not in found


def test_steps_keep_their_order() -> None:
    """A guard reads the field that the expansion before it made."""
    path = next(p for p in lower(fuse(message_passing.build())).paths if len(p.steps) == 2)
    assert isinstance(path.steps[0], Expand) and isinstance(path.steps[1], Guard)


def test_a_stored_field_cannot_be_read_by_a_row_count() -> None:
    size = TableType((Attr("words"),), Const(9))
    n = Field("n")
    g = Graph("ragged", Schema({"words": 5}, {"size": size}))
    g.add(Source("words", StateType((state_field("n", Attr("words"), 5),)), rows=table("size")(n)))
    g.add(Isu("forget", StateMap(store=("n",))))
    g.add(Loss("loss", trace(lambda y: y.builder.emit("to_float", [y.builder.integer(1)]), {"y": 0})))
    g.connect("words", "forget", "loss")
    with pytest.raises(GraphError) as caught:
        lower(g)
    assert str(caught.value) == (
        "node 'forget' port 'in' field 'n': stored on exit, so no expression over the new state can read it"
    )
