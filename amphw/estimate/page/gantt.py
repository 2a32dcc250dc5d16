"""What devices did when: a row for each, forward above its middle and backward below, coloured by node."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from amphw.estimate.outcome import DeviceOutcome
from amphw.estimate.page.svg import colour, drawing, label, line, rect, shortened
from amphw.estimate.play.events import Slice, Timeline
from amphw.page.html import text

ROW, GAP, AXIS = 26.0, 8.0, 34.0
ROWS = 24
"""Devices that are shown, at most: the busiest."""

UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


def shown(devices: Sequence[DeviceOutcome]) -> list[DeviceOutcome]:
    """The busiest, by their numbers."""
    busiest = sorted(devices, key=lambda device: -device.busy)[:ROWS]
    return sorted(busiest, key=lambda device: device.number)


def gantt(of: Timeline, devices: Sequence[DeviceOutcome], numbers: Mapping[str, int], width: float) -> str:
    """numbers: of nodes, for their colours."""
    rows = shown(devices)
    left = 190.0 if width > 600 else 28.0
    across = (width - left - 24) / of.seconds
    height = len(rows) * (ROW + GAP) + AXIS
    parts = []
    unit, scale = next((u for u in UNITS if of.seconds >= u[1]), UNITS[-1])
    step = _step(of.seconds / scale, 8 if width > 600 else 3)
    for k in range(int(of.seconds / scale / step) + 1):
        x = left + k * step * scale * across
        parts.append(line(x, 0, x, height - AXIS))
        parts.append(label(x, height - AXIS + 18, f"{k * step:g} {unit}", "middle", "soft"))
    own = defaultdict(list)
    for each in of.slices:
        own[each.device].append(each)
    for k, device in enumerate(rows):
        y = k * (ROW + GAP)
        name = f"{device.number}: {', '.join(device.nodes)}" if width > 600 else str(device.number)
        parts.append(label(left - 10, y + ROW / 2 + 4, shortened(name, left - 14), "end"))
        parts.append(rect(left, y, of.seconds * across, ROW, "row"))
        for (node, direction), path in _paths(own[device.number], of.begin, across, left).items():
            parts.append(_shape(path, y, node, direction, numbers[node]))
        parts.append(line(left, y + ROW / 2, left + of.seconds * across, y + ROW / 2))
    return drawing(width, height, parts, "What each device did over time")


def _paths(
    slices: Sequence[Slice], begin: float, across: float, left: float
) -> Mapping[tuple[str, str], list[list[float]]]:
    """Spans of pixels by node and direction; those that touch are one."""
    found: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for each in slices:
        start = left + (each.begin - begin) * across
        end = start + max(each.seconds * across, 0.8)
        spans = found[each.node, each.direction]
        if spans and start - spans[-1][1] < 0.2:
            spans[-1][1] = max(end, spans[-1][1])
        else:
            spans.append([start, end])
    return found


def _shape(spans: Sequence[Sequence[float]], y: float, node: str, direction: str, number: int) -> str:
    """All firings of a node in one direction; its name is shown where a pointer rests on it."""
    top, bottom = (y, y + ROW / 2) if direction == "forward" else (y + ROW / 2, y + ROW)
    path = "".join(f"M{a:.1f} {top:g}H{b:.1f}V{bottom:g}H{a:.1f}z" for a, b in spans)
    name = f"<title>{text(node)}, {direction}</title>"
    return f'<path d="{path}" class="own {colour(number)} {direction}">{name}</path>'


def _step(most: float, ticks: int) -> float:
    """A round number of which `ticks` or fewer are in `most`."""
    least = most / ticks
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= least * (1 - 1e-9))
