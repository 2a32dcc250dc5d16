"""Loops that cannot work, and states that cannot be recovered, joined or kept inside their region."""

from __future__ import annotations

import pytest

from amphw.ir.behaviour import StateMap
from amphw.ir.check import infer
from amphw.ir.errors import GraphError
from amphw.ir.expr import Attr, Const, Expr, Field, table
from amphw.ir.functions import argmax, sum_cols
from amphw.ir.graph import Graph
from amphw.ir.grouping import Group
from amphw.ir.instance import Schema, TableType, csr_of, inverse_of
from amphw.ir.nodes import NPT, Concat, Loss, Node, Observe, Source
from amphw.ir.primitives import ValueType
from amphw.ir.program import trace
from amphw.ir.routing import Bcast, Cond, Discard, Flatmap, Isu, Phi, Ungroup
from amphw.ir.state import FieldType, StateType, state_field

k, n, t = Field("k"), Field("n"), Field("t")
K, N, T = state_field("k", 3), state_field("n", Attr("nodes"), 9), state_field("t", 4)
NODES = {"nodes": 8}
EMPTY, ONE = StateType(), Const(1)


def fails(g: Graph) -> str:
    with pytest.raises(GraphError) as caught:
        infer(g)
    return str(caught.value)


def chain(*nodes: Node, state: StateType = EMPTY, schema: Schema | None = None) -> Graph:
    """A Source of width 0, the nodes one behind the other, and a Discard."""
    g = Graph("g", schema or Schema(NODES))
    for node in (Source("source", state), *nodes, Discard("end")):
        g.add(node)
    g.connect(*g.nodes)
    return g


def loop(*body: Node, entry: StateMap | None = None, leave: Node | None = None) -> Graph:
    """Source -> enter -> phi -> body -> cond (k == 2) -> back, or out to a Discard."""
    g = Graph("g", Schema(NODES))
    g.add(Source("source"))
    g.add(Isu("enter", entry if entry is not None else StateMap(add=((K, Const(0)),))))
    g.add(Phi("phi"))
    for node in body:
        g.add(node)
    g.add(Cond("cond", k.eq(2)))
    g.add(leave or Discard("out"))
    g.connect("source", "enter", "phi.a")
    g.connect("phi", *(x.name for x in body), "cond")
    g.connect("cond.yes", list(g.nodes)[-1])
    g.connect("cond.no", "phi.b")
    return g


# --- loops ---


def test_a_loop_that_is_right() -> None:
    infer(loop(Isu("next", StateMap(set={"k": k + 1}))))


def test_loop_without_exit() -> None:
    g = Graph("g", Schema())
    for node in (Source("s"), Isu("enter", StateMap(add=((K, Const(0)),))), Phi("phi")):
        g.add(node)
    g.add(Isu("next", StateMap(set={"k": k + 1})))
    g.connect("s", "enter", "phi.a")
    g.connect("phi", "next", "phi.b")
    assert fails(g) == "node 'phi': a loop without exit: next, phi; a Cond must lead out of it"


def test_loop_that_never_changes_its_state() -> None:
    g = loop(NPT("body", trace(lambda x: x, {"x": 0})))
    assert fails(g) == "node 'phi': a loop that never changes its state; an Isu must count or step"


def test_loop_without_entry() -> None:
    g = Graph("g", Schema())
    for node in (Source("s"), Concat("join"), Isu("next"), Bcast("fork"), Discard("out")):
        g.add(node)
    g.connect("s", "join.a")
    g.connect("join", "next", "fork")
    g.connect("fork.out0", "join.b")
    g.connect("fork.out1", "out")
    assert fails(g) == "node 'fork': a loop without entry: fork, join, next; a Phi must let messages in"


def test_a_join_that_waits_for_its_own_loop() -> None:
    """There is a Phi, but a Concat inside takes an operand that only comes around."""
    g = Graph("g", Schema())
    nodes = (Source("s"), Isu("enter", StateMap(add=((K, Const(0)),))), Phi("phi"), Concat("join"))
    for node in (*nodes, Isu("next", StateMap(set={"k": k + 1})), Bcast("fork", 3), Discard("out")):
        g.add(node)
    g.connect("s", "enter", "phi.a")
    g.connect("phi", "join.a")
    g.connect("join", "next", "fork")
    g.connect("fork.out0", "phi.b")
    g.connect("fork.out1", "join.b")
    g.connect("fork.out2", "out")
    assert fails(g) == (
        "node 'join' port 'b': waits for an operand that only comes around its own loop; "
        "enter the loop through a Phi"
    )


# --- fields that are dropped, added, carried out ---


def test_a_dropped_field_that_nothing_determines() -> None:
    g = chain(Isu("forget", StateMap(drop={"t": None})), state=StateType((T,)))
    assert fails(g) == (
        "node 'forget' port 'in' field 't': dropped, but the remaining state does not determine it: "
        "drop it behind a Cond that fixes its value, or say how to recover it"
    )


def test_a_cond_fixes_it_on_one_side_only() -> None:
    g = Graph("g", Schema())
    for node in (
        Source("source", StateType((T,))),
        Cond("cond", t.eq(2), drop=("t",)),
        Discard("a"),
        Discard("b"),
    ):
        g.add(node)
    g.connect("source", "cond")
    g.connect("cond.no", "a")
    g.connect("cond.yes", "b")
    assert fails(g) == (
        "node 'cond' port 'no' field 't': dropped, but the remaining state does not determine it: "
        "drop it behind a Cond that fixes its value, or say how to recover it"
    )


def test_a_field_that_is_not_there() -> None:
    for change in (StateMap(set={"q": k + 1}), StateMap(drop={"q": None})):
        g = chain(Isu("step", change), state=StateType((T,)))
        assert fails(g) == "node 'step' port 'in' field 'q': the state (t<4) has no such field"


def test_a_new_value_that_reads_a_field_that_is_not_there() -> None:
    g = chain(Isu("step", StateMap(add=((K, n + 1),))), state=StateType((T,)))
    assert fails(g) == ("node 'step' port 'in' field 'n': 'k = n + 1' reads a field that (t<4) does not hold")


def test_a_field_added_twice() -> None:
    g = chain(Isu("step", StateMap(add=((T, Const(0)),))), state=StateType((T,)))
    assert fails(g) == (
        "node 'step' port 'in' field 't': cannot form the new state: "
        "field 't': the field occurs twice in one state; rename the inner one"
    )


def test_a_region_field_that_escapes() -> None:
    g = Graph("g", Schema())
    with g.region("time", "map", "t"):
        g.add(Source("source", StateType((T,))))
    g.add(Discard("end"))
    g.connect("source", "end")
    assert fails(g) == (
        "node 'source' port 'out' field 't': the edge to 'end' leaves the region 'time' and still carries "
        "its field; drop it first"
    )


def test_an_undeclared_bound() -> None:
    g = chain(state=StateType((FieldType("t", Attr("nodes"), 0),)))
    assert fails(g) == (
        "node 'source' port 'out' field 't': its extent 'nodes' has no static bound; "
        "declare one (bound=...), and what happens there"
    )
    with pytest.raises(GraphError) as caught:
        state_field("t", Attr("nodes"))
    assert str(caught.value) == "field 't': the extent 'nodes' is not a constant: declare a static bound"


# --- inverses ---


def _tree(*axioms: object) -> Schema:
    nodes = Attr("nodes")
    column = TableType((nodes,), nodes)
    tables = {"parent": column, "side": column, "child": TableType((nodes, Const(2)), nodes)}
    return Schema(NODES, tables, axioms=tuple(axioms))  # type: ignore[arg-type]


def _climb(inverse: Expr) -> Isu:
    side = (state_field("side", 2), table("side")(n))
    return Isu("climb", StateMap(set={"n": table("parent")(n)}, add=(side,), inverse={"n": inverse}))


CHILD = table("child")(n, Field("side"))


def test_an_inverse_that_an_axiom_proves() -> None:
    proved = _tree(inverse_of("child", ("parent", "side"), N))
    infer(chain(_climb(CHILD), state=StateType((N,)), schema=proved))


def test_an_inverse_that_cannot_be_proved() -> None:
    g = chain(_climb(CHILD), state=StateType((N,)), schema=_tree())
    assert fails(g) == (
        "node 'climb' port 'in' field 'n': cannot prove that 'child[n, side]' recovers it from the new state "
        "(n<nodes, side<2); give drop/inverse an expression that an axiom of the schema supports, "
        "over fields with the extents that it states"
    )


def test_an_inverse_that_is_missing() -> None:
    g = chain(Isu("climb", StateMap(set={"n": table("parent")(n)})), state=StateType((N,)), schema=_tree())
    assert fails(g) == (
        "node 'climb' port 'in' field 'n': 'n = parent[n]' is not of the form n + constant; give its inverse"
    )


def test_an_inverse_that_reads_what_the_new_state_lacks() -> None:
    g = chain(Isu("drop", StateMap(drop={"t": k})), state=StateType((T,)))
    assert fails(g) == (
        "node 'drop' port 'in' field 't': its inverse 'k' reads 'k', which the new state () does not hold"
    )


def test_a_flatmap_that_forgets_its_node() -> None:
    off, src, edges = table("off"), table("src"), Attr("edges")
    degree = off(n + 1) - off(n)
    tables = {"off": TableType((Attr("nodes") + 1,), edges + 1), "src": TableType((edges,), Attr("nodes"))}
    J, E = state_field("j", degree, 9), state_field("e", edges, 9)
    change = StateMap(
        add=((E, off(n) + Field("j")),), drop={"n": src(Field("e")), "j": Field("e") - off(src(Field("e")))}
    )
    right = Schema({**NODES, "edges": 9}, tables, axioms=(csr_of("off", "src", N, J),))
    infer(chain(Flatmap("edges", J, change), state=StateType((N,)), schema=right))
    g = chain(
        Flatmap("edges", J, change), state=StateType((N,)), schema=Schema({**NODES, "edges": 9}, tables)
    )
    assert fails(g).startswith("node 'edges' port 'out' field 'n': cannot prove that 'src[e]' recovers it")


def test_a_flatmap_beyond_what_the_axiom_states() -> None:
    """`src[off[n] + j] == n` holds for n's own edges only, so nothing follows for a wider j."""
    off, src, edges = table("off"), table("src"), Attr("edges")
    tables = {"off": TableType((Attr("nodes") + 1,), edges + 1), "src": TableType((edges,), Attr("nodes"))}
    own, wide = state_field("j", off(n + 1) - off(n), 9), state_field("j", edges, 9)
    change = StateMap(
        add=((state_field("e", edges, 9), off(n) + Field("j")),),
        drop={"n": src(Field("e")), "j": Field("e") - off(src(Field("e")))},
    )
    schema = Schema({**NODES, "edges": 9}, tables, axioms=(csr_of("off", "src", N, own),))
    infer(chain(Flatmap("edges", own, change), state=StateType((N,)), schema=schema))
    g = chain(Flatmap("edges", wide, change), state=StateType((N,)), schema=schema)
    assert fails(g).startswith("node 'edges' port 'out' field 'n': cannot prove that 'src[e]' recovers it")


# --- joins ---


def joined(
    a: StateType, b: StateType, node: Node, widths: tuple[int, int] = (2, 2), rows: Expr = ONE
) -> Graph:
    g = Graph("g", Schema(NODES, data={"x": widths[0], "y": widths[1]}))
    g.add(Source("x", a, widths[0], data="x"))
    g.add(Source("y", b, widths[1], rows, data="y"))
    g.add(node)
    g.connect("x", f"{node.name}.a")
    g.connect("y", f"{node.name}.b")
    if node.outs:
        g.add(Discard("end"))
        g.connect(node.name, "end")
    return g


@pytest.mark.parametrize("node", [Concat("join"), NPT("join", trace(lambda a, b: a + b, {"a": 2, "b": 2}))])
def test_state_mismatch_at_a_join(node: Node) -> None:
    other = state_field("t", 5)
    assert fails(joined(StateType((T,)), StateType((other,)), node)) == (
        "node 'join' port 'b' field 't': joins 'a' with state (t<4) and 'b' with state (t<5)"
    )
    assert fails(joined(StateType((T,)), StateType((T, K)), node)) == (
        "node 'join' port 'b' field 'k': joins 'a' with state (t<4) and 'b' with state (t<4, k<3)"
    )
    assert fails(joined(StateType((T, K)), StateType(()), node)) == (
        "node 'join' port 'b' field 't': joins 'a' with state (t<4, k<3) and 'b' with state ()"
    )


def test_state_mismatch_at_a_phi() -> None:
    assert fails(joined(StateType((T,)), StateType((K,)), Phi("phi"))) == (
        "node 'phi' port 'b' field 'k': merges 'a' with state (t<4) and 'b' with state (k<3)"
    )


def test_rows_mismatch() -> None:
    assert fails(joined(StateType(), StateType(), Concat("join"), rows=Attr("nodes"))) == (
        "node 'join' port 'b': 'b' has nodes rows a message, 'a' has 1"
    )
    assert fails(joined(StateType(), StateType(), Phi("phi"), rows=Attr("nodes"))) == (
        "node 'phi' port 'b': 'a' brings [1, 2], 'b' brings [nodes, 2]"
    )


def test_width_mismatch_at_a_phi() -> None:
    assert fails(joined(StateType(), StateType(), Phi("phi"), (2, 3))) == (
        "node 'phi' port 'b': 'a' brings [1, 2], 'b' brings [1, 3]"
    )


def test_a_site_that_exists_already() -> None:
    state = StateType((T,))
    assert fails(joined(state, state, Phi("phi", site="t"))) == (
        "node 'phi' field 't': the state holds a field of that name already"
    )


# --- Group, Ungroup, Observe ---


def test_ungroup_enumerates_the_rows() -> None:
    g = chain(Ungroup("rows", state_field("r", 4)))
    assert fails(g) == "node 'rows' port 'in' field 'r': its extent is '4', the edge brings 1 rows"


def test_group_counts_over_its_own_state() -> None:
    g = chain(Group("all", StateMap(drop={"t": Field("$m")}), t, t + 1), state=StateType((T,)))
    assert fails(g) == "node 'all' field 't': the count 't + 1' reads it, but the group's state is ()"


def test_group_and_init_disagree() -> None:
    program = trace(lambda h, x: h, {"init": 0, "in": ValueType("float", "members", 0)})
    g = Graph("g", Schema(NODES))
    g.add(Source("x", StateType((T,))))
    g.add(Source("h", StateType((K,))))
    g.add(Group("all", StateMap(drop={"t": Field("$m")}), t, Const(4), True, program))
    g.add(Discard("end"))
    g.connect("x", "all.in")
    g.connect("h", "all.init")
    g.connect("all", "end")
    assert fails(g) == (
        "node 'all' port 'init' field 'k': the group's state is (), its init operand brings (k<3)"
    )


def test_group_takes_its_operands_in_order() -> None:
    program = trace(lambda x: x, {"members": ValueType("float", "members", 0)})
    g = chain(
        Group("all", StateMap(drop={"t": Field("$m")}), t, Const(4), program=program), state=StateType((T,))
    )
    assert fails(g) == (
        "node 'all': its program must take the operands ['in'] in this order and return one value"
    )
    program = trace(lambda x: x, {"in": 0})
    g = chain(
        Group("all", StateMap(drop={"t": Field("$m")}), t, Const(4), program=program), state=StateType((T,))
    )
    assert fails(g) == (
        "node 'all' port 'in': the program takes it in the row space 'rows', the node brings it in 'members'"
    )


def _observing(field: FieldType, state: StateType) -> Graph:
    g = Graph("g", Schema(NODES, data={"x": 2}))
    g.add(Source("x", state, 2, data="x"))
    g.add(Observe("see", trace(lambda x: (x, argmax(x)), {"x": 2}), field))
    g.add(Loss("loss", trace(sum_cols, {"y": 2})))
    g.connect("x", "see", "loss")
    return g


def test_observe_over_an_existing_field() -> None:
    assert fails(_observing(T, StateType((T,)))) == (
        "node 'see' field 't': Observe writes a fresh field, never over one that the state holds"
    )


def test_observe_needs_a_constant_extent() -> None:
    assert fails(_observing(N, StateType())) == (
        "node 'see' field 'n': the extent of an observed field must be a constant"
    )


def merged(*guards: Expr) -> Graph:
    """States n = 0 .. 2, of which those that pass a guard are merged; then n is dropped."""
    n = state_field("n", 3)
    g = Graph("merged", Schema())
    g.add(Source("three", StateType((n,))))
    g.add(Phi("phi", tuple(f"p{k}" for k in range(len(guards)))))
    rest = "three"
    for k, guard in enumerate(guards):
        g.add(Cond(f"c{k}", guard))
        g.connect(rest, f"c{k}")
        g.connect(f"c{k}.yes", f"phi.p{k}")
        rest = f"c{k}.no"
    g.add(Discard("others"))
    g.connect(rest, "others")
    g.add(Isu("drop", StateMap(drop={"n": None})))
    g.add(Loss("loss", trace(lambda y: y.builder.emit("to_float", [y.builder.integer(0)]), {"y": 0})))
    g.connect("phi", "drop", "loss")
    return g


def test_a_phi_knows_what_all_of_its_ports_know() -> None:
    """A field may be dropped where the rest determines it: one port's word is not enough."""
    n = Field("n")
    infer(merged(n.eq(1)))
    for guards in ((n.eq(0), n.eq(1)), (n.eq(1), n.ne(2)), (n.ne(2), n.eq(2))):
        with pytest.raises(GraphError, match="node 'drop'"):
            infer(merged(*guards))
