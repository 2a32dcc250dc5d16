"""What is wrong with the wiring: reported when it is made, or before anything runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from amphw.ir.check import infer
from amphw.ir.errors import GraphError
from amphw.ir.functions import sum_cols
from amphw.ir.graph import Graph
from amphw.ir.instance import Schema
from amphw.ir.nodes import NPT, Concat, Loss, Source
from amphw.ir.program import trace
from amphw.ir.routing import Bcast, Discard, Phi


def start() -> Graph:
    """A Source of width 2 named x, and a few nodes that are not connected yet."""
    g = Graph("g", Schema(data={"x": 2}))
    g.add(Source("x", width=2, data="x"))
    g.add(Bcast("fork"))
    g.add(NPT("twice", trace(lambda x: x * 2.0, {"x": 2})))
    g.add(Loss("loss", trace(sum_cols, {"y": 2})))
    return g


def says(text: str, run: Callable[[], object]) -> None:
    with pytest.raises(GraphError) as caught:
        run()
    assert str(caught.value) == text


def test_missing_in_port() -> None:
    g = start()
    g.connect("x", "loss")
    says("node 'fork' port 'in': nothing is connected to this in-port", lambda: infer(g))


def test_missing_out_port() -> None:
    g = start()
    g.connect("x", "fork")
    g.connect("fork.out0", "twice", "loss")
    says(
        "node 'fork' port 'out1': this out-port goes nowhere; connect it, or put a Discard behind it",
        lambda: infer(g),
    )


def test_an_out_port_connected_twice() -> None:
    g = start()
    g.connect("x", "twice")
    says(
        "node 'x' port 'out': connected twice: to 'twice.x' and to 'loss.y'; put a Bcast behind it",
        lambda: g.connect("x", "loss"),
    )


def test_an_in_port_connected_twice() -> None:
    g = start()
    g.connect("fork.out0", "loss")
    says(
        "node 'loss' port 'y': connected twice: from 'fork.out0' and from 'twice.out'; "
        "put a Phi or a Concat before it",
        lambda: g.connect("twice", "loss"),
    )


def test_unreachable_node() -> None:
    g = Graph("g", Schema(data={"x": 2}))
    g.add(Source("x", width=2, data="x"))
    g.add(Discard("end"))
    g.add(Bcast("ring"))
    g.add(Discard("spill"))
    g.connect("x", "end")
    g.connect("ring.out0", "ring.in")
    g.connect("ring.out1", "spill")
    says("node 'ring': no path leads here from a Source", lambda: infer(g))


def test_no_source() -> None:
    says(
        "the graph 'empty' has no Source, so nothing would ever run", lambda: infer(Graph("empty", Schema()))
    )


def test_duplicate_node() -> None:
    says("node 'fork': a node of this name exists already", lambda: start().add(Bcast("fork")))


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a\tb", "a\n"])
def test_names_that_cannot_be_referred_to(name: str) -> None:
    with pytest.raises(GraphError, match="a node's name must not be empty or contain dots or spaces$"):
        start().add(Bcast(name))


def test_unknown_node() -> None:
    says(
        "node 'sink': there is no such node (there are: x, fork, twice, loss)",
        lambda: start().connect("x", "sink"),
    )


def test_unknown_port() -> None:
    g = start()
    says(
        "node 'fork' port 'out2': no such out-port (there are: out0, out1)",
        lambda: g.connect("fork.out2", "loss"),
    )
    says("node 'twice' port 'y': no such in-port (there are: x)", lambda: g.connect("x", "twice.y"))
    says("node 'loss' port 'out': no such out-port (there are: none)", lambda: g.connect("loss.out", "twice"))


def test_a_port_must_be_named_where_there_are_several() -> None:
    g = start()
    g.add(Concat("both"))
    says("node 'fork': has the out-ports ['out0', 'out1']; say which", lambda: g.connect("fork", "loss"))
    says("node 'both': has the in-ports ['a', 'b']; say which", lambda: g.connect("twice", "both"))


def test_in_the_middle_of_a_path_the_port_is_the_in_port() -> None:
    g = start()
    g.add(Phi("phi"))
    g.connect("x", "phi.b", "loss")
    assert g.edges == {("x", "out"): ("phi", "b"), ("phi", "out"): ("loss", "y")}


def test_regions() -> None:
    g = start()
    with g.region("loop", "loop", "t"):
        pass
    with pytest.raises(GraphError) as caught, g.region("loop", "map"):
        pass
    assert str(caught.value) == "the region 'loop' exists already"
    with pytest.raises(GraphError) as caught, g.region("other", "while"):
        pass
    assert str(caught.value) == "unknown kind of region 'while'; there are loop, map, branch, call"
