"""Programs that do not fit their node, and names that the schema does not declare."""

from __future__ import annotations

import pytest

from amphw.ir.behaviour import StateMap
from amphw.ir.check import infer
from amphw.ir.errors import GraphError
from amphw.ir.expr import Attr, Const, Expr, Field, table
from amphw.ir.functions import argmax, number, spread_rows, sum_cols, sum_rows
from amphw.ir.graph import Graph
from amphw.ir.instance import Axiom, Schema, TableType
from amphw.ir.nodes import NPT, PPT, Loss, Node, Observe, Source, Split
from amphw.ir.primitives import ValueType
from amphw.ir.program import trace
from amphw.ir.routing import Cond, Discard, Flatmap, Isu, Replicate
from amphw.ir.state import StateType, state_field

T = state_field("t", 4)
t = Field("t")
ONE = Const(1)


def graph(*nodes: Node, schema: Schema | None = None, rows: Expr = ONE) -> Graph:
    """A Source of width 2 and one field, the nodes in a row, a Discard unless the last is a sink."""
    g = Graph("g", schema or Schema({"n": 9}, data={"x": 2}))
    g.add(Source("source", StateType((T,)), 2, rows, data="x"))
    for node in nodes:
        g.add(node)
    if not nodes or nodes[-1].outs:
        g.add(Discard("end"))
    g.connect(*g.nodes)
    return g


def fails(g: Graph) -> str:
    with pytest.raises(GraphError) as caught:
        infer(g)
    return str(caught.value)


def test_width_mismatch() -> None:
    g = graph(NPT("act", trace(lambda x: x * 2.0, {"x": 3})))
    assert fails(g) == "node 'act' port 'x': the edge brings width 2, the program expects 3"


def test_npt_with_parameters() -> None:
    g = graph(NPT("act", trace(lambda p, x: x @ p.W, {"x": 2}, {"W": (2, 2)})))
    assert fails(g) == "node 'act': an NPT with parameters ['W']; use PPT"


def test_ppt_without_parameters() -> None:
    g = graph(PPT("act", trace(lambda x: x * 2.0, {"x": 2})))
    assert fails(g) == "node 'act': a PPT without parameters; use NPT"


def test_loss_with_parameters() -> None:
    g = graph(Loss("loss", trace(lambda p, x: sum_cols(x @ p.W), {"x": 2}, {"W": (2, 2)})))
    assert fails(g) == "node 'loss': a Loss cannot own parameters; put them into a PPT before it"


def test_loss_names_its_outputs() -> None:
    g = graph(Loss("loss", trace(sum_cols, {"x": 2}), ("loss", "accuracy")))
    assert fails(g) == "node 'loss': 1 outputs, but names ('loss', 'accuracy')"


def test_integers_leave_a_node_through_observe_only() -> None:
    g = graph(NPT("best", trace(argmax, {"x": 2})))
    assert (
        fails(g)
        == "node 'best' port 'out': the program's output is an integer; only Observe turns it into a field"
    )
    g = graph(Observe("see", trace(lambda x: x, {"x": 2}), state_field("d", 2)))
    assert fails(g) == "node 'see': the program must return the payload and one integer"


def test_decisions_take_one_row() -> None:
    see = Observe("see", trace(lambda x: (x, argmax(x)), {"x": 2}), state_field("d", 2))
    g = graph(see, rows=Attr("n"))
    assert fails(g) == "node 'see': a decision needs one row a message, the edge brings n"


def test_split_adds_up() -> None:
    g = Graph("g", Schema(data={"x": 2}))
    for node in (Source("source", width=2, data="x"), Split("parts", (1, 2)), Discard("a"), Discard("b")):
        g.add(node)
    g.connect("source", "parts")
    g.connect("parts.out0", "a")
    g.connect("parts.out1", "b")
    assert fails(g) == "node 'parts' port 'in': widths (1, 2) do not add up to the edge's 2"


# --- fields ---


def test_a_program_that_reads_a_field_of_another_state() -> None:
    g = graph(NPT("act", trace(lambda x: x + number(x, Field("k") + 1), {"x": 2})))
    assert fails(g) == (
        "node 'act' field 'k': the program reads 'k + 1', a field that its state (t<4) does not hold"
    )


def test_routing_that_reads_a_field_of_another_state() -> None:
    g = graph(Flatmap("copies", state_field("j", Field("k"), 3)))
    assert fails(g) == (
        "node 'copies' port 'in' field 'k': the index's extent 'k' reads a field that the state (t<4) "
        "does not hold"
    )
    g = graph(Replicate("r", "r", 1, Field("k") % 1))
    assert fails(g).startswith("node 'r' port 'in' field 'k': the rule 'k % 1' reads a field")


def test_a_source_that_filters_by_a_field_it_lacks() -> None:
    g = graph()
    g.nodes["source"] = Source("source", StateType((T,)), 2, data="x", where=Field("k").eq(0))
    assert fails(g) == (
        "node 'source' port 'out' field 'k': its guard 'k == 0' reads a field that its state does not hold"
    )


def test_a_source_has_data_for_its_width() -> None:
    g = graph()
    g.nodes["source"] = Source("source", width=2)
    assert fails(g) == "node 'source': width 2 with data None: a width needs a data array, and the reverse"


# --- names of the schema ---


@pytest.mark.parametrize("where", ["program", "guard", "extent", "state", "rows"])
def test_undeclared_attributes_and_tables(where: str) -> None:
    for e, kind, name in ((Attr("depth"), "attribute", "depth"), (table("order")(t), "table", "order")):
        nodes: dict[str, Node] = {
            "program": NPT("node", trace(lambda x, e=e: x + number(x, e), {"x": 2})),
            "guard": Cond("node", e.eq(1), ("no", "yes")),
            "extent": Flatmap("node", state_field("j", e, 3)),
            "state": Isu("node", StateMap(add=((state_field("k", 3), e),), drop={})),
            "rows": NPT("node", trace(lambda x: sum_rows(x, "s"), {"x": 2}, spaces={"s": e})),
        }
        g = Graph("g", Schema(data={"x": 2}))
        g.add(Source("source", StateType((T,)), 2, data="x"))
        g.add(nodes[where])
        g.connect("source", "node")
        for port in nodes[where].outs:
            g.add(Discard(f"end_{port}"))
            g.connect(f"node.{port}", f"end_{port}")
        text = f"{e} == 1 == 0" if where == "guard" else str(e)
        assert (
            fails(g) == f"node 'node': '{text}' reads the {kind} '{name}', which the schema does not declare"
        )


def test_undeclared_data() -> None:
    g = graph(schema=Schema())
    assert fails(g) == (
        "node 'source' port 'out': reads the data array 'x', which the schema does not declare"
    )


def test_the_schema_reads_only_what_it_declares() -> None:
    for schema, text in (
        (
            Schema(tables={"T": TableType((Attr("m"),), Const(3))}, data={"x": 2}),
            "the table 'T' reads the attribute 'm', which the schema does not declare",
        ),
        (
            Schema(data={"x": 2}, axioms=(Axiom("a", (T,), table("T")(t), t),)),
            "the axiom 'a' reads the table 'T', which the schema does not declare",
        ),
        (
            Schema(data={"x": 2}, axioms=(Axiom("a", (T,), t, t, where=t < Attr("m")),)),
            "the axiom 'a' reads the attribute 'm', which the schema does not declare",
        ),
        (
            Schema(data={"x": 2}, axioms=(Axiom("a", (T,), t, t, where=Field("u") < 1),)),
            "field 'u': the axiom 'a' reads a field that it is not stated over; add it to `over`",
        ),
    ):
        assert fails(graph(schema=schema)) == text


# --- row spaces ---


def test_a_row_space_that_is_not_opened() -> None:
    g = graph(NPT("act", trace(lambda x: sum_rows(x, "all"), {"x": 2})))
    assert fails(g) == "node 'act': the program uses the row space 'all' but does not open it"


def test_an_operand_in_a_row_space_of_its_own() -> None:
    g = graph(NPT("act", trace(lambda x: x, {"x": ValueType("float", "all", 2)}, spaces={"all": 3})))
    assert fails(g) == (
        "node 'act' port 'x': the program takes it in the row space 'all', the node brings it in 'rows'"
    )


def test_reductions_need_a_space_of_one_row() -> None:
    g = graph(NPT("act", trace(lambda x: sum_rows(x, "all"), {"x": 2}, spaces={"all": Attr("n")})))
    assert fails(g) == "node 'act': sum_rows needs one row a message in 'all', which has n"
    g = graph(NPT("act", trace(lambda x: spread_rows(x, "all"), {"x": 2}, spaces={"all": 1})), rows=Attr("n"))
    assert fails(g) == "node 'act': spread_rows needs one row a message in 'rows', which has n"


def test_row_counts_read_the_firing_state() -> None:
    g = graph(NPT("act", trace(lambda x: sum_rows(x, "all"), {"x": 2}, spaces={"all": Field("k")})))
    assert fails(g) == (
        "node 'act' field 'k': the program reads 'k', a field that its state (t<4) does not hold"
    )
