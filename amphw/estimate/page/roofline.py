"""A roofline of each node: operations for a byte that crosses a link, against operations a second.

S. Williams, A. Waterman, D. Patterson: Roofline, Commun. ACM 52(4), 2009; here the slope is a link, not a
memory. A node's bytes are those on the link that carries most of them, of messages there and gradients back:
what the link can carry then bounds the node from above, however many links there are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from amphw.estimate.outcome import NodeOutcome, Outcome
from amphw.estimate.page.svg import LINE, colour, drawing, label, line, width_of
from amphw.ir.units import written

ABOVE, BELOW, RIGHT = 24.0, 44.0, 12.0
"""Around the plot."""

DIAGONAL = ((0.8, -0.7), (0.8, 0.7), (-0.8, -0.7), (-0.8, 0.7))
"""From a point to its label, sideways and down."""


ROOFS = 4
"""Of devices, and of links, that are drawn at most."""


@dataclass(frozen=True)
class Point:
    """Of one replica of a node. intensity: operations a byte, infinite where nothing crosses. rate:
    operations a second at the estimated throughput."""

    node: str
    intensity: float
    rate: float


def points(of: Outcome) -> list[Point]:
    """Of the nodes that compute anything."""
    found = []
    crossing = _bytes(of)
    for node in of.per_node:
        operations = _operations(node) / len(node.devices)
        size = max((bytes for (name, _), bytes in crossing.items() if name == node.name), default=0.0)
        if operations:
            found.append(
                Point(node.name, operations / size if size else math.inf, operations * of.throughput)
            )
    return found


def _operations(node: NodeOutcome) -> float:
    """Of an instance, over all replicas."""
    return node.forward.mean + node.backward.mean + node.update


def _bytes(of: Outcome) -> Counter[tuple[str, str]]:
    """Of an instance, by node and link."""
    ends = {link.name: (link.source, link.target) for link in of.links}
    names = {pair: name for name, pair in ends.items()}
    found: Counter[tuple[str, str]] = Counter()
    for edge in of.per_edge:
        back = (edge.gradient_bits_per_s or 0.0) / edge.bits_per_s if edge.bits_per_s else 0.0
        for node in {edge.source, edge.target}:
            for name, size in edge.link_bytes.items():
                a, b = ends[name]
                found[node, name] += size  # type: ignore[assignment]
                found[node, names[b, a]] += back * size  # type: ignore[assignment]
    return found


def device_rates(of: Outcome) -> list[float]:
    """Operations a second of the devices that have nodes, each value once."""
    return _several(device.roof for device in of.devices if device.nodes)


def _several(rates: Iterable[float]) -> list[float]:
    """The highest first; of many, the highest and the lowest."""
    found = sorted({float(f"{rate:.3g}") for rate in rates}, reverse=True)
    return found if len(found) <= ROOFS else [*found[: ROOFS - 1], found[-1]]


def link_rates(of: Outcome) -> list[float]:
    """Bits a second, each value once; none without a limit."""
    return _several(link.bits_per_s / link.share for link in of.links if link.share)


def roofline(of: Outcome, width: float) -> str:
    return _Plot(of, width).drawn()


class _Plot:
    def __init__(self, of: Outcome, width: float) -> None:
        self.points, self.rates, self.links = points(of), device_rates(of), link_rates(of)
        self.numbers = {node.name: k for k, node in enumerate(of.per_node)}
        self.width, self.height = width, 420.0 if width > 600 else 400.0
        self.left = 92.0 if width > 600 else 76.0
        inside = [p.intensity for p in self.points if math.isfinite(p.intensity)]
        ridges = [8 * rate / link for rate in self.rates[:1] for link in self.links[-1:]]
        self.x0, self.x1 = _decades([*inside, *ridges])
        self.y0, self.y1 = _decades([*(p.rate for p in self.points), *self.rates])
        outside = width_of(
            max((p.node for p in self.points if not math.isfinite(p.intensity)), key=len, default="")
        )
        self.aside = max(60.0, outside) + 20 if len(inside) < len(self.points) else 0.0  # crosses nothing
        self.end = width - RIGHT - self.aside
        self.taken: list[tuple[float, float, float, float]] = []

    def x(self, intensity: float) -> float:
        if not math.isfinite(intensity):
            return self.end + 24
        return self.left + (math.log10(intensity) - self.x0) / (self.x1 - self.x0) * (self.end - self.left)

    def y(self, rate: float) -> float:
        part = (math.log10(rate) - self.y0) / (self.y1 - self.y0)
        return self.height - BELOW - part * (self.height - ABOVE - BELOW)

    def drawn(self) -> str:
        parts = [*self._axes(), *self._roofs()]
        spots = [(self.x(p.intensity), self.y(p.rate)) for p in self.points]
        self.taken += [(x - 6, y - 6, x + 6, y + 6) for x, y in spots]
        for p, (x, y) in zip(self.points, spots, strict=True):
            style = f"own {colour(self.numbers[p.node])}"
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" class="{style}"/>')
            parts += self._named(p.node, x, y)
        return drawing(self.width, self.height, parts, "Roofline of each node")

    def _axes(self) -> Iterator[str]:
        bottom = self.height - BELOW
        step = 1 if self.end - self.left > 70 * (self.x1 - self.x0) else 2
        for power in range(self.x0, self.x1 + 1):
            x = self.x(10.0**power)
            yield line(x, ABOVE, x, bottom)
            if (power - self.x0) % step == 0 and not (self.aside and power == self.x1):
                yield label(x, bottom + 18, _power(power), "middle", "soft")
        step = 1 if bottom - ABOVE > 22 * (self.y1 - self.y0) else 2
        for power in range(self.y0, self.y1 + 1):
            y = self.y(10.0**power)
            yield line(self.left, y, self.end, y)
            if (power - self.y0) % step == 0:
                yield label(self.left - 8, y + 4, written(10.0**power, "op/s"), "end", "soft")
        yield label((self.left + self.end) / 2, bottom + 36, "operations for a byte", "middle", "soft")
        if self.aside:
            yield label(self.width - RIGHT, bottom + 18, "nothing", "end", "soft")
            yield label(self.width - RIGHT, bottom + 34, "crosses", "end", "soft")

    def _roofs(self) -> Iterator[str]:
        top = max(self.rates, default=10.0**self.y1)
        for link in self.links:
            # From the lower or left border of the plot up to the highest roof.
            begin = max(10.0**self.x0, 8 * 10.0**self.y0 / link)
            end = min(10.0**self.x1, 8 * top / link)
            if begin < end:
                ends = (self.x(begin), self.y(begin * link / 8), self.x(end), self.y(end * link / 8))
                yield line(*ends, style="roof")
                self._keep_off(*ends)
                yield from self._beside(f"link {written(link, 'b/s')}", ends)
        least = 8 * top / max(self.links, default=math.inf)
        for rate in self.rates:
            begin = max(10.0**self.x0, least * rate / top)
            yield line(self.x(begin), self.y(rate), self.end, self.y(rate), "roof")
            self._keep_off(self.x(begin), self.y(rate), self.end, self.y(rate))
            words = f"device {written(rate, 'op/s')}"
            spots = [(self.end - 4 - part * width_of(words), self.y(rate) - 7) for part in (1, 2.2, 3.4)]
            yield from self._put(words, spots)

    def _keep_off(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """No label on this line."""
        steps = max(1, int(math.hypot(x2 - x1, y2 - y1) / 6))
        for k in range(steps + 1):
            x, y = x1 + (x2 - x1) * k / steps, y1 + (y2 - y1) * k / steps
            self.taken.append((x - 3, y - 3, x + 3, y + 3))

    def _beside(self, words: str, ends: tuple[float, float, float, float]) -> Iterator[str]:
        """A label at the upper left of a slope."""
        x1, y1, x2, y2 = ends
        spots = []
        for part in (0.5, 0.6, 0.4, 0.7, 0.3, 0.8, 0.2):
            x, y = x1 + part * (x2 - x1) - width_of(words) - 10, y1 + part * (y2 - y1) - 4
            spots.append((x, y))
        yield from self._put(words, [*spots, (self.left + 4, ABOVE + 14)])

    def _put(self, words: str, spots: Sequence[tuple[float, float]]) -> Iterator[str]:
        """At the first spot that is free."""
        for x, y in spots:
            box = _box(words, x, y)
            if box[0] > self.left and box[2] < self.end and not any(_meet(box, o) for o in self.taken):
                self.taken.append(box)
                yield label(x, y, words, style="strong")
                return

    def _named(self, words: str, x: float, y: float) -> Sequence[str]:
        """A label where there is room, with a line to it where that is not beside the point."""
        wide = width_of(words)
        for away in (10, 24, 40, 58, 78, 100):
            for dx, dy in (
                (1, 0),
                (-1, 0),
                (0, -1),
                (0, 1),
                *DIAGONAL,
            ):
                at = x + dx * away - (wide if dx < 0 else wide / 2 if dx == 0 else 0)
                base = y + 4 + dy * (away + 4)
                box = _box(words, at, base)
                inside = box[0] > self.left and box[2] < self.width and box[1] > 0
                if (
                    inside
                    and box[3] < self.height - BELOW
                    and not any(_meet(box, other) for other in self.taken)
                ):
                    self.taken.append(box)
                    near = min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3])
                    leader = [line(x, y, *near, style="leader")] if away > 10 else []
                    return [*leader, label(at, base, words)]
        return []  # the table below has it


def _box(words: str, x: float, y: float) -> tuple[float, float, float, float]:
    return x - 2, y - LINE + 3, x + width_of(words) + 2, y + 4


def _meet(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Powers of ten around the values, with some room."""
    logs = [math.log10(value) for value in values if value > 0] or [0.0]
    return math.floor(min(logs) - 0.2), math.ceil(max(logs) + 0.2)


def _power(power: int) -> str:
    return f"{10.0**power:,g}" if -3 <= power <= 5 else f"1e{power}"
