"""Drawings: well-formed, nothing overlaps, nothing is clipped, loops are cut at their entry."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amphw.ir.draw import CLASSES, node_class, to_svg
from amphw.ir.graph import Graph
from amphw.ir.instance import Schema
from amphw.ir.layering import Link, Vertex, back_links, layers_of
from amphw.ir.layout import Layout, Rect, arrange
from amphw.ir.routing import Bcast
from tests.graphs.cases import CASES, each_name
from tests.ir.graphs import counting_loop, every_family

GRAPHS = {"every-family": every_family, "counting": counting_loop, **{c.name: c.build for c in CASES}}
each = pytest.mark.parametrize("name", each_name(GRAPHS))


def overlap(a: Rect, b: Rect) -> bool:
    return (
        min(a.x + a.width, b.x + b.width) - max(a.x, b.x) > 0.01
        and min(a.y + a.height, b.y + b.height) - max(a.y, b.y) > 0.01
    )


def inside(a: Rect, b: Rect) -> bool:
    return (
        a.x >= b.x - 0.01
        and a.y >= b.y - 0.01
        and a.x + a.width <= b.x + b.width + 0.01
        and a.y + a.height <= b.y + b.height + 0.01
    )


def check(layout: Layout, vertices: list[Vertex]) -> None:
    """Boxes, labels and groups keep clear of one another; members are inside, strangers outside."""
    boxes = [*layout.vertices.values(), *(r.label for r in layout.links if r.label.height)]
    for a, b in itertools.combinations(boxes, 2):
        assert not overlap(a, b)
    page = Rect(0, 0, layout.width, layout.height)
    assert all(inside(b, page) for b in [*boxes, *layout.groups.values()])
    for v in vertices:
        for name, group in layout.groups.items():
            if name in v.groups:
                assert inside(layout.vertices[v.name], group)
            else:
                assert not overlap(layout.vertices[v.name], group)
    for route in layout.links:  # lanes stand clear of every box
        lane = Rect(route.x - 1, route.lane_top, 2, route.lane_bottom - route.lane_top)
        assert not any(overlap(lane, b) for b in layout.vertices.values())


@st.composite
def pictures(draw: st.DrawFn) -> tuple[list[Vertex], list[Link]]:
    n, widths = draw(st.integers(1, 9)), st.sampled_from((10.0, 60.0, 150.0))
    groups = [(), ("a",), ("a", "b"), ("c",)]
    vertices = [
        Vertex(
            f"v{i}",
            draw(st.sampled_from((40.0, 150.0))),
            42.0,
            draw(st.sampled_from(groups)),
            draw(st.booleans()),
        )
        for i in range(n)
    ]
    end = st.integers(0, n - 1).map(lambda i: f"v{i}")
    links = draw(st.lists(st.builds(Link, end, end, widths, st.just(32.0)), max_size=14))
    return vertices, links


@settings(max_examples=60)
@given(pictures())
def test_nothing_overlaps(picture: tuple[list[Vertex], list[Link]]) -> None:
    check(arrange(*picture), picture[0])


@settings(max_examples=60)
@given(pictures())
def test_without_back_links_every_link_runs_downwards(picture: tuple[list[Vertex], list[Link]]) -> None:
    vertices, links = picture
    back = back_links(vertices, links)
    layer = layers_of(vertices, links, back)
    assert all(layer[e.head] >= layer[e.tail] + 2 for i, e in enumerate(links) if i not in back)


@each
def test_drawings_are_well_formed_and_within_the_page(name: str) -> None:
    graph = GRAPHS[name]()
    root = ET.fromstring(to_svg(graph))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    texts = {e.text for e in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {*graph.nodes, *CLASSES.values(), f"graph {graph.name}"} <= texts
    for region in graph.regions.values():
        fields = f" ({', '.join(region.fields)})" if region.fields else ""
        assert f"{region.kind} {region.name}{fields}" in texts
    body = root.find("{http://www.w3.org/2000/svg}g")
    assert body is not None
    dx, dy = map(float, body.attrib["transform"][10:-1].split())
    for e in body.iter("{http://www.w3.org/2000/svg}rect"):
        x, y = float(e.attrib["x"]) + dx, float(e.attrib["y"]) + dy
        assert x >= 0 and x + float(e.attrib["width"]) <= width
        assert y >= 40 and y + float(e.attrib["height"]) <= height - 30


def test_edges_say_state_and_width() -> None:
    svg = to_svg(counting_loop())
    for label in ("() [2]", "(k) [2]", "no →", "→ b", "Isu k ← k + 1", "Isu −k", "PPT W 2×2"):
        assert f">{label}</text>" in svg
    assert svg.count('class="back"') == 2  # the loop's edge, and the one in the legend
    assert "prefers-color-scheme:dark" in svg


def test_a_faulty_graph_is_drawn_without_types() -> None:
    graph = Graph("half", Schema())
    graph.add(Bcast("a<b"))
    svg = to_svg(graph)
    assert "a&lt;b" in svg and "[" not in svg.split("</style>")[1]


def test_an_empty_graph_has_a_drawing() -> None:
    assert ET.fromstring(to_svg(Graph("empty", Schema()))).attrib["class"] == "amphw-graph"


def test_loops_are_cut_at_the_entry() -> None:
    vertices = [Vertex(n, 10, 10, (), n.startswith("phi")) for n in ("s", "phi1", "phi2", "x", "y")]
    ends = [("s", "phi1"), ("phi1", "phi2"), ("phi2", "x"), ("x", "phi2"), ("x", "y"), ("y", "phi1")]
    links = [Link(a, b, 0, 0) for a, b in ends]
    assert back_links(vertices, links) == {3, 5}


def test_every_node_has_a_class() -> None:
    classes = {node.family: node_class(node) for node in every_family().nodes.values()}
    assert set(classes.values()) == set(CLASSES)
    assert (classes["PPT"], classes["Phi"], classes["Loss"], classes["Group"]) == (
        "owner",
        "route",
        "end",
        "compute",
    )
