"""The parts of the page that are tables, with bars in them."""

from __future__ import annotations

from collections.abc import Sequence

from amphw.estimate.outcome import Outcome
from amphw.estimate.page.roofline import points
from amphw.estimate.page.svg import colour, legend
from amphw.estimate.sentences import lateness
from amphw.ir.units import written
from amphw.page.html import Markup, note, table
from amphw.page.numbers import bits, number, percent, seconds, size

STYLE = """\
.scroll { margin: 12px 0; }
td { white-space: nowrap; overflow-wrap: normal; min-width: 0; }
td.long { white-space: normal; overflow-wrap: anywhere; min-width: 8em; }
tbody th.long { white-space: normal; min-width: 12em; }
thead th.number { white-space: normal; }
th:first-child { position: sticky; left: 0; background: var(--page); }
.bar { display: flex; width: 160px; height: 10px; margin: 7px 0; background: var(--panel); }
.bar i { display: block; height: 100%; background: var(--c); }
.two .bar { height: 8px; margin: 4px 0; }
@media (max-width: 720px) {
  .bar { width: 120px; }
  tbody th { white-space: nowrap; min-width: 0; }
  tbody th.long { white-space: normal; overflow-wrap: break-word; min-width: 9em; max-width: 9em; }
}
"""

PARTS = ("value", "gradient", "optimiser", "in_flight")
PART_NAMES = ("parameters", "gradients", "optimiser", "instances in flight")


def bars(*shares: Sequence[tuple[float, int]]) -> Markup:
    """Below each other; each of parts with (share of the width, colour)."""
    made = "".join(
        '<div class="bar">'
        + "".join(
            f'<i class="{colour(k)}" style="width:{100 * min(1.0, part):.2f}%"></i>' for part, k in each
        )
        + "</div>"
        for each in shares
    )
    return Markup(f'<div class="two">{made}</div>' if len(shares) > 1 else made)


FOLDED = 40
"""Rows from which on a table is shown when somebody asks for it."""


def _folded(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str] = (),
    long: Sequence[str] = (),
) -> str:
    made = table(columns, rows, right, long)
    if len(rows) < FOLDED:
        return made
    return f"<details><summary>{number(len(rows))} rows by {columns[0]}</summary>{made}</details>"


def _arrow(link: str) -> str:
    """Its name, which is not broken."""
    return link.replace(" -> ", "\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}")


def _crossed(names: Sequence[str]) -> str:
    """The links of an edge, of many the first."""
    more = f" and {number(len(names) - 1)} more" if len(names) > 2 else ""
    return ", ".join(map(_arrow, names[:1] if more else names)) + more or "stays"


def links(of: Outcome) -> str:
    played = of.played
    columns = ["link", "bytes an instance", "b/s", "busy, calculated"]
    columns += ["busy, played", "a message waits"] if played else []
    rows = []
    for link in sorted(of.crossed, key=lambda link: -link.bytes):
        row = [_arrow(link.name), size(link.bytes), bits(link.bits_per_s)]
        row.append("no limit" if link.share is None else percent(link.share))
        if played:
            row += [percent(played.link_busy[link.name]), seconds(played.link_waited[link.name])]
        rows.append(row)
    return _folded(columns, rows, columns[1:])


def edges(of: Outcome) -> str:
    numbers = [
        *("messages", "messages/s", "bytes", "bytes, most", "weights"),
        *("b/s", "b/s back"),
    ]
    rows = [
        [
            f"{edge.source} → {edge.target}" + (f".{edge.port}" if edge.port else ""),
            number(edge.messages.mean if edge.messages else None),
            number(edge.messages_per_s),
            size(edge.activation_bytes.mean),
            size(edge.activation_bytes.most),
            size(edge.weight_bytes),
            bits(edge.bits_per_s),
            bits(edge.gradient_bits_per_s),
            _crossed(edge.links),
        ]
        for edge in of.per_edge
    ]
    return _folded(["edge", *numbers, "link"], rows, numbers)


def intensities(of: Outcome) -> str:
    columns = ["node", "operations for a byte", "operations a second"]
    rows = [
        [
            p.node,
            "nothing crosses" if p.intensity == float("inf") else number(p.intensity),
            written(p.rate, "op/s"),
        ]
        for p in points(of)
    ]
    return _folded(columns, rows, columns[1:])


def rates(of: Outcome) -> str:
    """As calculated and as played through."""
    played = of.played
    assert played is not None
    steady = (of.keys or 0) / of.throughput
    rows = [
        [
            "instances a second",
            number(of.throughput),
            number(played.throughput),
            percent(played.throughput / of.throughput),
        ],
        [
            "an instance takes",
            seconds(steady),
            seconds(played.latency),
            percent(played.latency / steady) if steady else "",
        ],
        ["an instance alone takes", seconds(of.chain.mean) if of.chain else "", "", ""],
    ]
    columns = ["", "calculated", "played through", "of that"]
    return _folded(columns, rows, columns[1:])


def devices(of: Outcome) -> str:
    played = of.played
    assert played is not None
    columns = ["device", "", "busy, calculated", "busy, played", "firings waiting, most", "nodes", "what"]
    rows = []
    for each, busy, queued in zip(of.devices, played.device_busy, played.queued, strict=True):
        own = bars([(each.share, 0)], [(busy, 1)])
        nodes = ", ".join(each.nodes) or "none"
        chip = [f"{count:,} {name}" for name, count in each.resources.items()]
        what = ", ".join([each.what, *chip])
        rows.append([str(each.number), own, percent(each.share), percent(busy), number(queued), nodes, what])
    return _folded(columns, rows, columns[2:5], ["nodes", "what"])


def nodes(of: Outcome) -> str:
    assert of.played is not None
    columns = ["node", "devices", "firings", "Mflop", "messages/s", "updates behind"]
    rows = []
    for node in of.per_node:
        flops = node.forward.mean + node.backward.mean + node.update
        rows.append(
            [
                node.name,
                ", ".join(map(str, node.devices)),
                number(node.firings.mean if node.firings else None),
                number(flops / 1e6),
                number(node.messages_per_s),
                lateness(of.played, node),
            ]
        )
    return _folded(columns, rows, columns[2:])


def memory(of: Outcome) -> str:
    """Of each device: what is in it, on one scale, which is the room where that is known."""
    most = max(max(d.memory, d.room or 0.0) for d in of.devices) or 1.0
    rows = []
    for device in of.devices:
        parts = [sum(_times(of, device.number, part)) for part in PARTS]
        own = bars([(part / most, k) for k, part in enumerate(parts)])
        room = "no limit" if device.room is None else size(device.room)
        rows.append([str(device.number), own, size(device.memory), room, *map(size, parts)])
    columns = ["device", "", "needed", "of", *PART_NAMES]
    names = [(name, colour(k)) for k, name in enumerate(PART_NAMES)]
    return legend(names) + _folded(columns, rows, columns[2:])


def _times(of: Outcome, device: int, part: str) -> list[float]:
    """Of the nodes there, with all their replicas."""
    return [getattr(node.memory, part) * list(node.devices).count(device) for node in of.per_node]


def sensitivity(of: Outcome) -> str:
    base = of.sensitivity[0]
    top = max(
        [each.throughput or 0.0 for each in of.sensitivity] + [each.played or 0.0 for each in of.sensitivity]
    )
    columns = ["otherwise", "", "calculated", "gain", "played through", "gain, played", "then limits"]
    rows = []
    for each in of.sensitivity:
        if each.throughput is None or each.played is None:
            rows.append([each.what, "", "", "", "", "", f"impossible: {each.why}"])
            continue
        gains = each.throughput / (base.throughput or 1.0), each.played / (base.played or 1.0)
        own = bars([(each.throughput / top, 0)], [(each.played / top, 1)])
        rates = number(each.throughput), f"{gains[0]:.2f}×", number(each.played), f"{gains[1]:.2f}×"
        rows.append([each.what, own, *rates, _arrow(each.bottleneck)])
    return _both() + _folded(columns, rows, columns[2:6], columns[6:])


def _both() -> str:
    return legend([("calculated", colour(0)), ("played through", colour(1))])


def placements(of: Outcome) -> str:
    top = max((each.played or 0.0 for each in of.placements), default=1.0)
    top = max(top, *(each.throughput or 0.0 for each in of.placements))
    columns = ["placement", "", "calculated", "played through", "devices used", "busiest link"]
    columns += ["bytes that cross", "limits"]
    rows = []
    for each in of.placements:
        if each.throughput is None or each.played is None:
            rows.append([each.name, "", "", "", "", "", "", f"impossible: {each.why}"])
            continue
        own = bars([(each.throughput / top, 0)], [(each.played / top, 1)])
        rows.append(
            [
                each.name,
                own,
                number(each.throughput),
                number(each.played),
                str(each.devices),
                bits(each.busiest_bits_per_s),
                size(each.bytes),
                _arrow(each.bottleneck),
            ]
        )
    return _both() + _folded(columns, rows, columns[2:7], columns[7:]) + _where(of)


def _where(of: Outcome) -> str:
    """The devices of each node, by placement."""
    known = [each for each in of.placements if each.where]
    rows = [
        [node.name, *(", ".join(map(str, each.where[node.name])) for each in known)] for node in of.per_node
    ]
    columns = ["node", *(each.name for each in known)]
    return f"<details><summary>Devices of each node</summary>{table(columns, rows)}</details>"


def accuracy(of: Outcome) -> str:
    if not of.accuracy:
        return note("No estimate has been measured.")
    columns = ["model", "setting", "error", "measured", "simulated", "unit", "beside", "date", "machine"]
    own_first = sorted(of.accuracy, key=lambda row: row.model != of.model)
    rows = [
        [
            row.model,
            row.setting,
            f"{row.error:+.1%}",
            number(row.measured),
            number(row.simulated),
            row.unit,
            row.against,
            row.date,
            row.machine,
        ]
        for row in own_first
    ]
    remarks = dict.fromkeys(f"{row.model}: {row.note}." for row in own_first if row.note)
    commands = dict.fromkeys(row.command for row in own_first)
    made = _folded(
        columns, rows, ["error", "measured", "simulated"], ["setting", "unit", "beside", "machine"]
    )
    return made + "".join(map(note, remarks)) + note(f"Measured by: {'; '.join(commands)}.")


def origins(of: Outcome) -> str:
    rows = [[name, each.origin, each.how] for name, each in of.origin.items()]
    columns = ["number", "origin", "how it is known"]
    return _folded(columns, rows, long=columns[2:])
