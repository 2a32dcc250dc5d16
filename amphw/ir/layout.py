"""A layered layout for drawings: longest-path layers, barycentre order, groups as rectangles of their own.

Even layers hold vertices, odd layers the labels of links. A link is a straight vertical *lane* through the
layers that it crosses, with the label at one end; lanes take room in the packing like vertices do, and curves
run only in the gaps between layers. So nothing ever overlaps, whatever order the heuristic finds. A group is
packed first and then placed as one rigid block, which keeps strangers out of its rectangle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from amphw.ir.layering import Link, Vertex, back_links, layers_of

GAP_X = 18.0
GAP_Y = 24.0
LANE = 7.0  # half the width that a link takes in the layers that it only crosses
PAD_X, PAD_TOP, PAD_BOTTOM = 16.0, 34.0, 30.0  # between a group's border and what it holds
BEND = 34.0  # room that a back link needs above its head and below its tail
ROUNDS = 24


@dataclass(frozen=True)
class Rect:
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Route:
    """A link: from (x0, y0) to a vertical lane at x from lane_top to lane_bottom, to (x1, y1).

    back: it runs upwards, so it leaves below its tail and bends around into the lane.
    """

    x0: float
    y0: float
    x: float
    lane_top: float
    lane_bottom: float
    x1: float
    y1: float
    back: bool
    label: Rect


@dataclass(frozen=True)
class Layout:
    vertices: dict[str, Rect]
    links: list[Route]
    groups: dict[str, Rect]
    width: float
    height: float


@dataclass
class _Item:
    """What is packed: a vertex, a link's lane, or a whole group. half: half its width by layer."""

    key: object
    half: dict[int, float]
    members: list[_Item] = field(default_factory=list)
    x: float = 0.0  # its centre

    def shift(self, by: float) -> None:
        self.x += by
        for member in self.members:
            member.shift(by)


def arrange(
    vertices: Sequence[Vertex], links: Sequence[Link], titles: Mapping[str, float] | None = None
) -> Layout:
    """Place vertices and links; coordinates are pixels, y grows downwards, everything starts at (0, 0).

    titles: group -> the width that its title needs.
    """
    return _Arrangement(vertices, links, titles or {}).result()


class _Arrangement:
    def __init__(self, vertices: Sequence[Vertex], links: Sequence[Link], titles: Mapping[str, float]):
        self.titles = titles
        self.vertices, self.links = {v.name: v for v in vertices}, list(links)
        self.back = back_links(vertices, links)
        self.layer = layers_of(vertices, links, self.back)
        self.items: dict[object, _Item] = {}
        self.groups: dict[str, _Item] = {}
        self.root = _Item(None, {})
        for v in vertices:
            self._add(v.name, v.groups, {self.layer[v.name]: v.width / 2})
        for i, e in enumerate(self.links):
            self._add(i, self._common(e), self._lane(i, e))
        for item in self.groups.values():
            item.half = dict.fromkeys(self._span(item), 0.0)
        self._search()

    # --- items ---

    def _common(self, e: Link) -> tuple[str, ...]:
        """The groups that hold both ends."""
        a, b = self.vertices[e.tail].groups, self.vertices[e.head].groups
        n = 0
        while n < min(len(a), len(b)) and a[n] == b[n]:
            n += 1
        return a[:n]

    def label_layer(self, i: int) -> int:
        e = self.links[i]
        if i not in self.back:
            return self.layer[e.tail] + 1
        return max(self.layer[e.head], self.layer[e.tail] - 1)

    def _lane(self, i: int, e: Link) -> dict[int, float]:
        if i in self.back:
            span = range(self.layer[e.head], self.layer[e.tail] + 1)
        else:
            span = range(self.layer[e.tail] + 1, self.layer[e.head])
        return {n: max(LANE, e.width / 2) if n == self.label_layer(i) else LANE for n in span}

    def _add(self, key: object, groups: tuple[str, ...], half: dict[int, float]) -> None:
        parent = self.root
        for name in groups:
            if name not in self.groups:
                self.groups[name] = _Item(name, {})
                parent.members.append(self.groups[name])
            parent = self.groups[name]
        self.items[key] = _Item(key, half)
        parent.members.append(self.items[key])

    def _span(self, item: _Item) -> range:
        layers = [n for m in item.members for n in (m.half or self._span(m))]
        return range(min(layers), max(layers) + 1)

    # --- order and x ---

    def _search(self) -> None:
        """Order by barycentres, pack, repeat, from several beginnings; the best round wins."""
        best: tuple[float, dict[object, float]] | None = None
        for begin, turn in ((begin, turn) for begin in self._beginnings() for turn in range(ROUNDS)):
            if turn == 0:
                for key, item in self.items.items():
                    item.x = begin[key]
            # Sweeps find the order; later rounds pull both ways to straighten what the sweeps found.
            both = turn % 20 >= 8
            self._pack(self.root, self._wanted(both or turn % 2 == 1, both or turn % 2 == 0))
            cost = self._cost()
            if best is None or cost < best[0] - 1e-9:
                best = cost, {k: item.x for k, item in [*self.items.items(), *self.groups.items()]}
                halves = {k: dict(g.half) for k, g in self.groups.items()}
        assert best is not None
        for k, item in [*self.items.items(), *self.groups.items()]:
            item.x = best[1][k]
        for k, g in self.groups.items():
            g.half = halves[k]

    def _beginnings(self) -> list[dict[object, float]]:
        """Places to begin with: vertices, then links, as they were given; the same mirrored; and each vertex
        beside what it leads to, which keeps apart what branches apart."""
        given = {key: float(n) for n, key in enumerate(self.items)}
        leading: dict[str, list[int]] = {name: [] for name in self.vertices}
        for i, e in enumerate(self.links):
            leading[e.tail].append(i)
        beside: dict[object, float] = {}
        for first in self.vertices:
            open_ends: list[int | str] = [first]
            while open_ends:
                key = open_ends.pop()
                if key in beside:
                    continue
                beside[key] = float(len(beside))
                if isinstance(key, int):
                    open_ends.append(self.links[key].head)
                else:
                    open_ends += reversed(leading[key])
        return [given, {key: -x for key, x in given.items()}, beside]

    def ports(self) -> tuple[dict[int, float], dict[int, float]]:
        """x where each link leaves its tail, and where it enters its head: in the order of the lanes."""
        out: tuple[dict[int, float], dict[int, float]] = ({}, {})
        for side, end in ((0, "tail"), (1, "head")):
            at: dict[str, list[int]] = {}
            for i, e in enumerate(self.links):
                at.setdefault(getattr(e, end), []).append(i)
            for name, ids in at.items():
                ids.sort(key=lambda i: self.items[i].x)
                width, x = self.vertices[name].width, self.items[name].x
                for k, i in enumerate(ids):
                    out[side][i] = x - width / 2 + width * (k + 1) / (len(ids) + 1)
        return out

    def _wanted(self, upwards: bool, downwards: bool) -> Callable[[_Item], float]:
        """Where each item would like its centre: the mean of what it is linked to, above, below or both.

        Layer by layer in that direction, each reading the new places of the ones before.
        """
        leave, enter = self.ports()
        place = {k: item.x for k, item in self.items.items()}
        shift_out = {i: leave[i] - place[e.tail] for i, e in enumerate(self.links)}
        shift_in = {i: enter[i] - place[e.head] for i, e in enumerate(self.links)}
        ins: dict[str, list[int]] = {n: [] for n in self.vertices}
        outs: dict[str, list[int]] = {n: [] for n in self.vertices}
        for i, e in enumerate(self.links):
            outs[e.tail].append(i)
            ins[e.head].append(i)
        for key in sorted(self.items, key=lambda k: min(self.items[k].half), reverse=not downwards):
            if isinstance(key, int):
                e, side = self.links[key], 40.0 if key in self.back else 0.0  # keep clear of the way down
                above = [place[e.tail] + shift_out[key] + side]
                below = [place[e.head] + shift_in[key] + side]
            else:
                above = [place[i] - shift_in[i] for i in ins[str(key)] if i not in self.back]
                below = [place[i] - shift_out[i] for i in outs[str(key)] if i not in self.back]
            pull = (above if downwards else []) + (below if upwards else []) or above + below
            if pull:
                place[key] = sum(pull) / len(pull)

        def wanted(item: _Item) -> float:
            if item.members:
                return sum(map(wanted, item.members)) / len(item.members)
            return place[item.key]

        return wanted

    def _pack(self, group: _Item, wanted: Callable[[_Item], float]) -> None:
        """Place the members without overlap, each as near to where it wants to be as the order allows."""
        target = {id(m): wanted(m) for m in group.members}
        for m in group.members:
            if m.members:
                self._pack(m, wanted)
        order = sorted(group.members, key=lambda m: target[id(m)])
        left: dict[int, list[tuple[_Item, float]]] = {}
        right: dict[int, list[tuple[_Item, float]]] = {}
        last: dict[int, _Item] = {}
        for m in order:
            for n, half in m.half.items():
                if n in last:
                    distance = last[n].half[n] + GAP_X + half
                    left.setdefault(id(m), []).append((last[n], distance))
                    right.setdefault(id(last[n]), []).append((m, distance))
                last[n] = m
            low = max((o.x + d for o, d in left.get(id(m), [])), default=target[id(m)])
            m.shift(max(low, target[id(m)]) - m.x)
        for sweep in range(8):
            for m in reversed(order) if sweep % 2 == 0 else order:
                low = max((o.x + d for o, d in left.get(id(m), [])), default=float("-inf"))
                high = min((o.x - d for o, d in right.get(id(m), [])), default=float("inf"))
                m.shift(min(max(target[id(m)], low), high) - m.x)
        if group is not self.root:
            edges = [(m.x - h, m.x + h) for m in group.members for h in m.half.values()]
            low, high = min(a for a, _ in edges) - PAD_X, max(b for _, b in edges) + PAD_X
            group.x = (low + high) / 2
            half = max(high - low, self.titles.get(str(group.key), 0.0)) / 2
            group.half = dict.fromkeys(self._span(group), half)

    def _cost(self) -> float:
        """Length of the slanted parts, with a price for each crossing."""
        leave, enter = self.ports()
        by_gap: dict[int, list[tuple[float, float]]] = {}
        total = 0.0
        for i in range(len(self.links)):
            x, layers = self.items[i].x, list(self.items[i].half)
            total += abs(leave[i] - x) + abs(enter[i] - x)
            for n in layers[:-1]:
                by_gap.setdefault(n, []).append((x, x))
            if i not in self.back:
                by_gap.setdefault(layers[0] - 1, []).append((leave[i], x))
                by_gap.setdefault(layers[-1], []).append((x, enter[i]))
        if len(self.links) > 150:
            return total
        for segments in by_gap.values():
            for k, (a, b) in enumerate(segments):
                total += 60.0 * sum((a - c) * (b - d) < 0 for c, d in segments[k + 1 :])
        return total + 0.2 * self._width()

    def _width(self) -> float:
        xs = [(m.x - h, m.x + h) for m in self.root.members for h in m.half.values()]
        return max(b for _, b in xs) - min(a for a, _ in xs) if xs else 0.0

    # --- y and the result ---

    def _nesting(self, name: str, last: bool) -> int:
        """How many groups, this one included, start (or end) one inside the other at this layer."""
        g = self.groups[name]
        edge = (max if last else min)(g.half)
        inner = [
            self._nesting(str(m.key), last)
            for m in g.members
            if m.members and (max if last else min)(m.half) == edge
        ]
        return 1 + max(inner, default=0)

    def _rows(self) -> tuple[dict[int, float], dict[int, float]]:
        """Top of each layer, and its height."""
        height: dict[int, float] = {}
        for name, v in self.vertices.items():
            height[self.layer[name]] = max(height.get(self.layer[name], 0.0), v.height)
        for i, e in enumerate(self.links):
            n = self.label_layer(i)
            height[n] = max(height.get(n, 0.0), e.height)
        above: dict[int, float] = {}
        below: dict[int, float] = {}
        for name, g in self.groups.items():
            first, end = min(g.half), max(g.half)
            above[first] = max(above.get(first, 0.0), self._nesting(name, False) * PAD_TOP)
            below[end] = max(below.get(end, 0.0), self._nesting(name, True) * PAD_BOTTOM)
        for i in self.back:
            head, tail = self.layer[self.links[i].head], self.layer[self.links[i].tail]
            above[head] = max(above.get(head, 0.0), BEND + (PAD_TOP if head in above else 0.0))
            below[tail] = max(below.get(tail, 0.0), BEND)
        top, y = {}, 0.0
        for n in range(max(height, default=-1) + 1):
            y += above.get(n, 0.0)
            top[n] = y
            y += height.get(n, 0.0) + below.get(n, 0.0) + GAP_Y
        return top, height

    def result(self) -> Layout:
        top, height = self._rows()
        bottom = {n: y + height.get(n, 0.0) for n, y in top.items()}
        edges = [m.x - h for m in self.root.members for h in m.half.values()]
        self.root.shift(-min(edges, default=0.0))
        vertices = {}
        for name, v in self.vertices.items():
            n = self.layer[name]
            y = top[n] + (height[n] - v.height) / 2
            vertices[name] = Rect(self.items[name].x - v.width / 2, y, v.width, v.height)
        leave, enter = self.ports()
        links = [
            self._route(i, e, vertices, leave[i], enter[i], top, bottom) for i, e in enumerate(self.links)
        ]
        groups = {}
        for name, g in self.groups.items():
            first, end = min(g.half), max(g.half)
            y = top[first] - self._nesting(name, False) * PAD_TOP
            h = bottom[end] + self._nesting(name, True) * PAD_BOTTOM - y
            groups[name] = Rect(g.x - g.half[first], y, 2 * g.half[first], h)
        total = max([0.0, *bottom.values(), *(r.y + r.height for r in groups.values())])
        total = max([total, *(r.lane_bottom + BEND for r in links if r.back)])
        return Layout(vertices, links, groups, self._width(), total)

    def _route(
        self,
        i: int,
        e: Link,
        vertices: Mapping[str, Rect],
        x0: float,
        x1: float,
        top: Mapping[int, float],
        bottom: Mapping[int, float],
    ) -> Route:
        item, n = self.items[i], self.label_layer(i)
        tail, head = vertices[e.tail], vertices[e.head]
        middle = (top[n] + bottom[n]) / 2
        label = Rect(item.x - e.width / 2, middle - e.height / 2, e.width, e.height)
        lane = top[min(item.half)], bottom[max(item.half)]
        return Route(x0, tail.y + tail.height, item.x, *lane, x1, head.y, i in self.back, label)
