"""Instances to walk through, as a section of a page: their data as JSON, and the script that shows it.

What is written is small: numbers in columns, and what firings share once a frame.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amphw.page.html import Markup, note, part

TENTHS = 10.0
"""Of a microsecond are times in."""

KINDS = ("forward", "backward", "infer")


@dataclass(frozen=True)
class Frame:
    """Several firings that ran together. version: of the node's parameters, as it began. when: worker, start
    and duration in microseconds; None: it was not traced."""

    number: int
    node: str
    kind: str
    version: int
    firings: int
    when: tuple[int, float, float] | None


@dataclass(frozen=True)
class Firing:
    """state: values of the node's state. origins: the firings of the instance that sent it a message."""

    frame: Frame
    state: Sequence[int]
    origins: Sequence[int]


@dataclass(frozen=True)
class Walked:
    """An instance. loss: the sum of its losses; NaN where there is none."""

    number: int
    mode: str
    loss: float
    firings: Sequence[Firing]


@dataclass(frozen=True)
class Walkthrough:
    """fields: names of the state, by node. homes: devices of nodes, where there are several."""

    fields: Mapping[str, Sequence[str]]
    homes: Mapping[str, str]
    instances: Sequence[Walked]

    @property
    def messages(self) -> int:
        """From one firing to another."""
        return sum(len(firing.origins) for each in self.instances for firing in each.firings)


def section(of: Walkthrough) -> Markup:
    """The markup of the section, with its script."""
    about = (
        f"The newest {len(of.instances):,} instances of the log, with {of.messages:,} messages from node to "
        "node. A box is a node at work on this instance, a line a message; gradients return below. Choose an "
        "instance, then go from step to step."
    )
    # "</" would end the element, whatever it stands in.
    data = json.dumps(_columns(of), separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    parts = [part(__package__, name) for name in ("walk.html", "walk.js")]
    return Markup(
        '<section id="walk"><h2>One instance, step by step</h2>'
        + note(about)
        + parts[0]
        + f'<script type="application/json" id="walk-data">{data}</script>\n'
        + f"<script>\n{parts[1]}</script></section>"
    )


def style() -> str:
    """CSS of the section."""
    return part(__package__, "walk.css")


def _columns(of: Walkthrough) -> dict[str, object]:
    nodes = {name: k for k, name in enumerate(of.fields)}
    frames: dict[int, int] = {}
    shown: list[Frame] = []
    for each in of.instances:
        for firing in each.firings:
            if firing.frame.number not in frames:
                frames[firing.frame.number] = len(shown)
                shown.append(firing.frame)
    known = [frame.when[1] for frame in shown if frame.when is not None]
    began = min(known, default=0.0)
    columns: dict[str, list[object]] = {name: [] for name in ("number", "node", "kind", "version", "firings")}
    columns |= {"worker": [], "start": [], "took": []}
    for frame in shown:
        worker, start, took = frame.when or (None, None, None)
        columns["number"].append(frame.number)
        columns["node"].append(nodes[frame.node])
        columns["kind"].append(KINDS.index(frame.kind))
        columns["version"].append(frame.version)
        columns["firings"].append(frame.firings)
        columns["worker"].append(worker)
        columns["start"].append(None if start is None else round((start - began) * TENTHS))
        columns["took"].append(None if took is None else round(took * TENTHS))
    instances = []
    for each in of.instances:
        instances.append(
            {
                "number": each.number,
                "mode": each.mode,
                "loss": each.loss if math.isfinite(each.loss) else None,
                "frame": [frames[firing.frame.number] for firing in each.firings],
                "state": [list(firing.state) for firing in each.firings],
                # How many firings before this one.
                "from": [[k - origin for origin in firing.origins] for k, firing in enumerate(each.firings)],
            }
        )
    return {
        "nodes": [[name, of.homes.get(name, ""), list(fields)] for name, fields in of.fields.items()],
        "frames": columns,
        "instances": instances,
    }
