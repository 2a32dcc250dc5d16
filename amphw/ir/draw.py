"""Draws a graph as SVG: nodes by class of family, regions behind them, edges with their state and width.

The picture needs no script and no font of its own, and follows the reader's light or dark theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from amphw.ir.behaviour import EdgeType, StateMap
from amphw.ir.check import infer
from amphw.ir.errors import AmphwError
from amphw.ir.expr import Const
from amphw.ir.graph import Graph, PortRef
from amphw.ir.layering import Link, Vertex
from amphw.ir.layout import BEND, Rect, Route, arrange
from amphw.ir.nodes import Loss, Node, Source
from amphw.ir.routing import Bcast, Cond, Discard, Flatmap, Isu, Phi, Replicate, Ungroup

Point = tuple[float, float]

MARGIN = 20.0
HEADER = 40.0
CHAR = 0.61  # width of a monospaced character, in em
LONGEST = 36  # characters of a line before it is cut

CLASSES = {
    "owner": "owns parameters",
    "compute": "computes",
    "route": "routes",
    "end": "source or sink",
}
"""Class of a node -> its text in the legend."""

# fill, border: light then dark; text and lines are common to all.
_COLOURS = {
    "owner": (("#d7e6fb", "#2864b4"), ("#1d3a5f", "#79aef2")),
    "compute": (("#d9f0dd", "#2b7a3f"), ("#1c4329", "#74c98a")),
    "route": (("#fbe9c8", "#9a6a0c"), ("#4a3710", "#e0b050")),
    "end": (("#e9e0f5", "#6a4a9c"), ("#3a2c57", "#b79be8")),
}
_COMMON = (
    {"paper": "#ffffff", "ink": "#1b1f24", "faint": "#57606a", "line": "#6e7781", "back": "#b3261e"},
    {"paper": "#15191e", "ink": "#e8edf2", "faint": "#a3adb8", "line": "#8b96a2", "back": "#ff8a80"},
)


def to_svg(graph: Graph) -> str:
    """The graph as an SVG document; a graph that does not pass the checks is drawn without edge types."""
    try:
        types: Mapping[PortRef, EdgeType] = infer(graph).edges
    except AmphwError:
        types = {}
    edges = list(graph.edges.items())
    labels = [_edge_lines(graph, out, into, types.get(out)) for out, into in edges]
    vertices = [_vertex(graph, node) for node in graph.nodes.values()]
    links = [
        Link(out[0], into[0], *_size(lines, 11)) for (out, into), lines in zip(edges, labels, strict=True)
    ]
    titles = {name: len(_region_title(graph, name)) * 11 * CHAR + 20 for name in graph.regions}
    layout = arrange(vertices, links, titles)
    legend = _legend()
    title = f"graph {graph.name}"
    width = max(layout.width, _legend_width(), len(title) * 15 * CHAR) + 2 * MARGIN
    height = layout.height + HEADER + 3 * MARGIN + 20
    shift = MARGIN + (width - 2 * MARGIN - layout.width) / 2
    body = [f'<g class="region"><rect {_at(rect)} rx="10"/></g>' for rect in layout.groups.values()]
    ends = [_ends_of(k, out, into) for k, (out, into) in enumerate(edges)]
    body += [_line(route, about) for route, about in zip(layout.links, ends, strict=True)]
    passing = [point for route in layout.links for point in _passes(route)] if layout.groups else []
    body += [_heading(rect, _region_title(graph, name), passing) for name, rect in layout.groups.items()]
    body += [
        _label(route.label, lines, f"{'.'.join(out)} → {'.'.join(into)} {types.get(out, '')}".strip(), about)
        for route, lines, (out, into), about in zip(layout.links, labels, edges, ends, strict=True)
    ]
    body += [_box(node, layout.vertices[name]) for name, node in graph.nodes.items()]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}" class="amphw-graph">',
            f"<title>{escape(title)}</title>",
            f"<style>{_style()}</style>",
            _marker("line"),
            _marker("back"),
            f'<rect class="paper" width="{width:.0f}" height="{height:.0f}"/>',
            _text("ink", MARGIN, 28, title, 'font-size="15" font-weight="bold"'),
            f'<g transform="translate({shift:.1f} {HEADER + MARGIN / 2:.1f})">',
            *body,
            "</g>",
            f'<g transform="translate({MARGIN} {height - MARGIN - 14:.1f})">',
            *legend,
            "</g>",
            "</svg>",
            "",
        ]
    )


# --- what is written ---


def node_class(node: Node) -> str:
    """A key of CLASSES."""
    if isinstance(node, Source | Loss | Discard):
        return "end"
    if node.params:
        return "owner"
    if isinstance(node, Cond | Phi | Isu | Bcast | Flatmap | Ungroup | Replicate):
        return "route"
    return "compute"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _detail(node: Node) -> str:
    """What a node of its family is about, beside its name."""
    if node.params:
        return ", ".join(f"{p.name} {'×'.join(map(str, p.shape))}" for p in node.params)
    if isinstance(node, Cond | Replicate):
        return str(node.index if isinstance(node, Cond) else node.rule)
    state_map = getattr(node, "map", None)
    if isinstance(state_map, StateMap):
        changes = [f"{k} ← {e}" for k, e in state_map.set.items()]
        changes += [f"+{f.name} = {e}" for f, e in state_map.add]
        changes += [f"−{k}" for k in (*state_map.drop, *state_map.store)]
        index = getattr(node, "index", None)
        return ", ".join([str(index)] * (index is not None) + changes)
    if isinstance(node, Source) and node.data is not None:
        return f"data {node.data}"
    return ""


def _node_lines(node: Node) -> list[str]:
    detail = _detail(node)
    return [_cut(node.name), _cut(f"{node.family} {detail}".strip())]


def _edge_lines(graph: Graph, out: PortRef, into: PortRef, edge: EdgeType | None) -> list[str]:
    """Port names where a node has several, then state and payload."""
    ports = [p if len(all_ports) > 1 else "" for p, all_ports in _ends(graph, out, into)]
    lines = [_cut(" → ".join(ports).strip())] if any(ports) else []
    if edge is not None:
        rows = "" if edge.rows == Const(1) else f"{edge.rows}, "
        lines.append(_cut(f"({', '.join(edge.state.names)}) [{rows}{edge.width}]"))
    return lines


def _ends(graph: Graph, out: PortRef, into: PortRef) -> list[tuple[str, tuple[str, ...]]]:
    return [(out[1], graph.nodes[out[0]].outs), (into[1], graph.nodes[into[0]].ins)]


def _size(lines: list[str], font: float) -> tuple[float, float]:
    return max(map(len, lines), default=0) * font * CHAR + 10, len(lines) * (font + 3) + 4


def _vertex(graph: Graph, node: Node) -> Vertex:
    name, below = _node_lines(node)
    width = max(len(name) * 13 * CHAR, len(below) * 11 * CHAR) + 22
    groups = tuple(reversed(graph.ancestors(node.name)))
    return Vertex(node.name, max(width, 64.0), 42.0, groups, isinstance(node, Phi))


# --- how it is written ---


def _at(r: Rect) -> str:
    return f'x="{r.x:.1f}" y="{r.y:.1f}" width="{r.width:.1f}" height="{r.height:.1f}"'


def _text(kind: str, x: float, y: float, text: str, font: str = 'font-size="11"') -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" {font}>{escape(text)}</text>'


def _box(node: Node, r: Rect) -> str:
    name, below = _node_lines(node)
    x, y = r.x + r.width / 2, r.y
    return (
        f'<g class="node {node_class(node)}" data-node="{escape(node.name)}">'
        f"<title>{escape(f'{node.family} {node.name}: {_detail(node)}'.removesuffix(': '))}</title>"
        f'<rect {_at(r)} rx="6"/>'
        + _text("ink", x, y + 18, name, 'font-size="13" font-weight="bold"')
        + _text("ink", x, y + 33, below)
        + "</g>"
    )


def _label(r: Rect, lines: list[str], title: str, about: str) -> str:
    if not lines:
        return ""
    texts = "".join(_text("ink", r.x + r.width / 2, r.y + 12 + 14 * k, line) for k, line in enumerate(lines))
    return (
        f'<g class="label" {about}><title>{escape(title)}</title>'
        f'<rect class="paper" {_at(r)} rx="3"/>{texts}</g>'
    )


def _ends_of(number: int, out: PortRef, into: PortRef) -> str:
    """Attributes that say of an edge's line and label which one it is."""
    return f'data-edge="{number}" data-from="{escape(out[0])}" data-to="{escape(into[0])}"'


def _line(r: Route, about: str) -> str:
    """The curve runs in the gaps between layers and straight down (or up) its lane."""
    (x0, y0), c0, c1, (x1, y1), (x2, y2), c2, c3, (x3, y3) = _points(r)
    bends = [f"{x:.1f} {y:.1f}" for x, y in (c0, c1, c2, c3)]
    path = (
        f"M{x0:.1f} {y0:.1f} C{bends[0]} {bends[1]} {x1:.1f} {y1:.1f} "
        f"L{x2:.1f} {y2:.1f} C{bends[2]} {bends[3]} {x3:.1f} {y3:.1f}"
    )
    kind = "back" if r.back else "line"
    return f'<path class="{kind}" {about} d="{path}" marker-end="url(#amphw-{kind})"/>'


def _points(r: Route) -> list[Point]:
    """Those of two cubic curves. A line joins the end of the first and the beginning of the second."""
    low, high = (r.y0 + r.lane_top) / 2, (r.lane_bottom + r.y1) / 2
    first, second = r.lane_top, r.lane_bottom
    if r.back:
        first, second = second, first
        low, high = r.lane_bottom + BEND, r.lane_top - BEND
    return [
        *((r.x0, r.y0), (r.x0, low), (r.x, low), (r.x, first)),
        *((r.x, second), (r.x, high), (r.x1, high), (r.x1, r.y1)),
    ]


def _passes(r: Route) -> list[Point]:
    """Points of its line, close enough together that none slips through a letter's height."""
    found: list[Point] = []
    points = _points(r)
    for a, b, c, d in (points[:4], points[4:]):
        steps = 8 + int(abs(a[0] - d[0]) / 4 + abs(a[1] - d[1]) / 4)
        for k in range(steps + 1):
            t, s = k / steps, 1 - k / steps
            weights = (s * s * s, 3 * s * s * t, 3 * s * t * t, t * t * t)
            found.append(
                (
                    sum(w * p[0] for w, p in zip(weights, (a, b, c, d), strict=True)),
                    sum(w * p[1] for w, p in zip(weights, (a, b, c, d), strict=True)),
                )
            )
    between = (points[3], points[4])
    length = int(abs(between[0][1] - between[1][1]) / 4)
    low = min(between[0][1], between[1][1])
    return found + [(r.x, low + 4 * k) for k in range(length)]


def _heading(r: Rect, text: str, passing: Sequence[Point]) -> str:
    """A region's title, at its upper edge, as far to the left as no line runs through it."""
    width, y = len(text) * 11 * CHAR, r.y + 16
    near = sorted(x for x, at in passing if y - 12 <= at <= y + 5)
    x = r.x + 10
    for at in near:
        if x - 4 <= at <= x + width + 4:
            x = at + 8
    if x + width > r.x + r.width - 6:  # there is room nowhere: what is left of it lies over the lines
        x = r.x + 10
    return _text("faint title", x, y, text, f'font-size="11" data-room="{r.x + r.width - x - 8:.0f}"')


def _region_title(graph: Graph, name: str) -> str:
    region = graph.regions[name]
    return _cut(f"{region.kind} {name}" + (f" ({', '.join(region.fields)})" if region.fields else ""))


def _marker(kind: str) -> str:
    return (
        f'<marker id="amphw-{kind}" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path class="tip-{kind}" d="M0 0.5 L8 4 L0 7.5 z"/></marker>'
    )


def _legend() -> list[str]:
    out, x = [], 0.0
    for kind, text in CLASSES.items():
        out.append(
            f'<g class="node {kind}"><rect x="{x:.1f}" y="0" width="18" height="14" rx="3"/>'
            + _text("ink legend", x + 25, 11, text)
            + "</g>"
        )
        x += 45 + len(text) * 11 * CHAR
    out.append(f'<path class="back" d="M{x:.1f} 7 h22" marker-end="url(#amphw-back)"/>')
    out.append(_text("ink legend", x + 29, 11, "closes a loop"))
    return out


def _legend_width() -> float:
    return sum(45 + len(t) * 11 * CHAR for t in CLASSES.values()) + 30 + 14 * 11 * CHAR


def _style() -> str:
    base = (
        ".amphw-graph text{font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}"
        ".amphw-graph .node text,.amphw-graph .label text{text-anchor:middle}"
        ".amphw-graph .node text.legend{text-anchor:start}"
        ".amphw-graph path{fill:none;stroke-width:1.4}.amphw-graph .node rect{stroke-width:1.4}"
        ".amphw-graph .region rect{stroke-dasharray:5 4;fill-opacity:.07}"
        ".amphw-graph .title{paint-order:stroke;stroke-width:5px;stroke-linejoin:round}"
    )
    return base + _theme(0) + "@media (prefers-color-scheme:dark){" + _theme(1) + "}"


def _theme(which: int) -> str:
    c = _COMMON[which]
    rules = [f".amphw-graph .{k}{{fill:{c[k]}}}" for k in ("paper", "ink", "faint")]
    for kind in ("line", "back"):
        rules.append(
            f".amphw-graph path.{kind}{{stroke:{c[kind]}}}.amphw-graph .tip-{kind}{{fill:{c[kind]}}}"
        )
    rules.append(f".amphw-graph .title{{stroke:{c['paper']}}}")
    rules.append(f".amphw-graph .region rect{{fill:{c['faint']};stroke:{c['faint']}}}")
    for kind, colours in _COLOURS.items():
        fill, border = colours[which]
        rules.append(f".amphw-graph .{kind} rect{{fill:{fill};stroke:{border}}}")
    return "".join(rules)
