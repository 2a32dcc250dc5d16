"""The network: devices as boxes below each other, links as wires beside them, in lanes.

A wire runs from its box to its lane, along the lane, and back to the other box. Its label stands in its lane
between two boxes, where no wire crosses a lane: so labels cannot lie on one another, however many there are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from amphw.estimate.outcome import DeviceOutcome, LinkOutcome, Outcome
from amphw.estimate.page.svg import LINE, drawing, label, rect, shortened, width_of
from amphw.page.numbers import bits, percent

DEVICES, WIRES = 16, 24
"""That are drawn, at most: those that most crosses."""

BETWEEN, PORT = 44.0, 15.0
"""Between boxes, for labels of two lines; and between the ends of wires at a box."""

AS_BUSY = 0.99
"""Share of the bottleneck's time from which on something else limits, too."""

LINES = 4
"""Of nodes' names in a box."""


@dataclass
class Wire:
    """Between two devices: the links in both directions, where they are used. ends: heights at the boxes."""

    upper: int
    lower: int
    down: LinkOutcome | None
    up: LinkOutcome | None
    lane: int = 0

    @property
    def links(self) -> list[LinkOutcome]:
        return [link for link in (self.down, self.up) if link is not None]

    @property
    def bytes(self) -> float:
        return max(link.bytes for link in self.links)

    def words(self) -> list[str]:
        """One line where both directions carry the same."""
        alike = self.down and self.up and abs(self.down.bytes - self.up.bytes) < 0.01 * self.bytes
        if alike:
            link = self.links[0]
            return [bits(link.bits_per_s), *([percent(link.share)] if link.share is not None else [])]
        ways = (("↓", self.down), ("↑", self.up))
        return [
            f"{arrow} {bits(link.bits_per_s)}" + (f" {percent(link.share)}" if link.share is not None else "")
            for arrow, link in ways
            if link is not None
        ]


def network_map(of: Outcome, width: float) -> str:
    return _Map(of, width).drawn()


def left_out(of: Outcome) -> tuple[int, int]:
    """Devices and pairs of devices with a link that are not in the drawing."""
    made = _Map(of, 1e3)
    pairs = {frozenset((link.source, link.target)) for link in of.crossed}
    return len(of.devices) - len(made.order), len(pairs) - len(made.wires)


class _Map:
    def __init__(self, of: Outcome, width: float) -> None:
        self.hot = {load.name for load in of.loads if load.share > AS_BUSY}
        self.box = 300.0 if width > 600 else 150.0
        devices = _carrying(of)
        pairs: dict[tuple[int, int], dict[tuple[int, int], LinkOutcome]] = {}
        for link in of.crossed:
            if link.source in devices and link.target in devices:
                key = min(link.source, link.target), max(link.source, link.target)
                pairs.setdefault(key, {})[link.source, link.target] = link
        heaviest = sorted(pairs, key=lambda pair: -max(link.bytes for link in pairs[pair].values()))[:WIRES]
        self.order = _ordered(sorted(devices), heaviest)
        self.devices = {d.number: d for d in of.devices}
        self.wires = []
        for a, b in heaviest:
            upper, lower = sorted((a, b), key=self.order.index)
            own = pairs[a, b]
            self.wires.append(Wire(upper, lower, own.get((upper, lower)), own.get((lower, upper))))
        self.most = max((wire.bytes for wire in self.wires), default=1.0)
        self.lanes = _in_lanes(self.wires, self.order)

    def drawn(self) -> str:
        words = [width_of(each) for wire in self.wires for each in wire.words()]
        pitch = max(words, default=0.0) + 18
        tops, heights = self._boxes()
        parts = []
        ports = self._ports(tops, heights)
        gaps = [tops[d] + heights[d] for d in self.order]
        # The lightest first, so that the heaviest lie above.
        for wire in sorted(self.wires, key=lambda wire: wire.bytes):
            parts += self._wire(wire, ports, self.box + 26 + wire.lane * pitch)
        for wire in self.wires:
            first, last = self.order.index(wire.upper), self.order.index(wire.lower)
            y = gaps[(first + last - 1) // 2]
            own = wire.words()
            base = y + BETWEEN / 2 + 5 - (len(own) - 1) * LINE / 2
            x = self.box + 26 + wire.lane * pitch + 7
            style = "strong" if self._limits(wire) else ""
            parts += [label(x, base + k * LINE, each, style=style) for k, each in enumerate(own)]
        for d in self.order:
            parts += self._device(self.devices[d], tops[d], heights[d])
        height = gaps[-1] + 2
        return drawing(
            self.box + 26 + self.lanes * pitch, height, parts, "Devices and the links between them"
        )

    def _boxes(self) -> tuple[dict[int, float], dict[int, float]]:
        tops, heights, y = {}, {}, 1.0
        for d in self.order:
            count = sum(d in (wire.upper, wire.lower) for wire in self.wires)
            heights[d] = max(38 + LINE * len(self._names(self.devices[d])), PORT * (count + 1))
            tops[d] = y
            y += heights[d] + BETWEEN
        return tops, heights

    def _ports(
        self, tops: dict[int, float], heights: dict[int, float]
    ) -> dict[tuple[int, int], tuple[float, float]]:
        """Heights of a wire's ends, by its devices. At a box those that lead up stand above, and those in
        outer lanes further away from where they lead to, so that few wires cross."""
        found: dict[tuple[int, int], list[float]] = {(w.upper, w.lower): [0.0, 0.0] for w in self.wires}
        for d in self.order:
            up = sorted((w for w in self.wires if w.lower == d), key=lambda w: w.lane)
            down = sorted((w for w in self.wires if w.upper == d), key=lambda w: -w.lane)
            own = [*up, *down]
            for k, wire in enumerate(own):
                y = tops[d] + heights[d] * (k + 1) / (len(own) + 1)
                found[wire.upper, wire.lower][wire.lower == d] = y
        return {key: (a, b) for key, (a, b) in found.items()}

    def _limits(self, wire: Wire) -> bool:
        return any(link.name in self.hot for link in wire.links)

    def _wire(self, wire: Wire, ports: dict[tuple[int, int], tuple[float, float]], x: float) -> list[str]:
        a, b = ports[wire.upper, wire.lower]
        part = max((link.share or 0.0) for link in wire.links) or wire.bytes / self.most
        style = "wire hot" if self._limits(wire) else "wire"
        ends = self.box + 7
        path = f'<path d="M{ends:.1f} {a:.1f}H{x:.1f}V{b:.1f}H{ends:.1f}" stroke-width="{1.2 + 4 * part:.1f}"'
        heads = [(y, link) for y, link in ((a, wire.up), (b, wire.down)) if link is not None]
        return [
            f'{path} class="{style}"/>',
            *(
                f'<path d="M{self.box + 1:.1f} {y:.1f}l9 -5v10z" class="{style} head"/>'
                for y, link in heads
                if link.bytes
            ),
        ]

    def _device(self, device: DeviceOutcome, top: float, height: float) -> list[str]:
        title = f"device {device.number}"
        parts = [
            rect(1, top, self.box - 1, height, "box hot" if title in self.hot else "box", 6),
            label(11, top + 20, title, style="strong"),
            label(self.box - 10, top + 20, percent(device.share), "end", "soft"),
            rect(11, top + 27, self.box - 21, 3, "trough"),
            rect(11, top + 27, (self.box - 21) * min(1.0, device.share), 3, "filled"),
        ]
        return parts + [label(11, top + 44 + k * LINE, each) for k, each in enumerate(self._names(device))]

    def _names(self, device: DeviceOutcome) -> list[str]:
        """In lines."""
        room, lines = self.box - 20, [""]
        for k, name in enumerate(device.nodes):
            word = name + ("," if k + 1 < len(device.nodes) else "")
            if lines[-1] and width_of(f"{lines[-1]} {word}") > room:
                if len(lines) == LINES:
                    more = f" and {len(device.nodes) - k} more"
                    lines[-1] = shortened(lines[-1], room - width_of(more)).rstrip("…") + more
                    break
                lines.append("")
            lines[-1] = shortened(f"{lines[-1]} {word}".strip(), room)
        return lines if device.nodes else ["no nodes"]


def _carrying(of: Outcome) -> set[int]:
    """The devices that are drawn."""
    crossing = {d.number: 0.0 for d in of.devices}
    for link in of.crossed:
        crossing[link.source] += link.bytes
        crossing[link.target] += link.bytes
    found = sorted(of.devices, key=lambda d: (-crossing[d.number], -d.busy, d.number))
    return {d.number for d in found[:DEVICES]}


def _ordered(devices: list[int], pairs: Sequence[tuple[int, int]]) -> list[int]:
    """An order in which wires are short: one device is moved, or two are exchanged, as long as that helps."""

    def length(order: Sequence[int]) -> int:
        at = {d: k for k, d in enumerate(order)}
        return sum(abs(at[a] - at[b]) for a, b in pairs)

    def steps(order: list[int]) -> Iterator[list[int]]:
        for j, k in itertools.permutations(range(len(order)), 2):
            moved = [*order[:j], *order[j + 1 :]]
            moved.insert(k, order[j])
            yield moved
            exchanged = list(order)
            exchanged[j], exchanged[k] = order[k], order[j]
            yield exchanged

    better: list[int] | None = devices
    while better is not None:
        devices, least = better, length(better)
        better = next((other for other in steps(devices) if length(other) < least), None)
    return devices


def _in_lanes(wires: Sequence[Wire], order: Sequence[int]) -> int:
    """Give each wire the innermost free lane, short ones first. Returns the number of lanes."""
    at = {d: k for k, d in enumerate(order)}
    lanes: list[list[tuple[int, int]]] = []
    for wire in sorted(wires, key=lambda wire: (at[wire.lower] - at[wire.upper], -wire.bytes)):
        begin, end = at[wire.upper], at[wire.lower]
        free = (k for k, own in enumerate(lanes) if all(end <= a or begin >= b for a, b in own))
        wire.lane = next(free, len(lanes))
        if wire.lane == len(lanes):
            lanes.append([])
        lanes[wire.lane].append((begin, end))
    return len(lanes)
