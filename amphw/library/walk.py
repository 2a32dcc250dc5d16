"""What a report walks through: the newest instances of a logged run, message by message.

A service log says which firings each frame had; the trace says when and where the frame ran; the plan of an
instance says which firing sends to which. Together they are every message's way, with its state, the version
of the parameters that it met, and how long it waited for others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from amphw.engine.lowering.lower import Lowered, lower
from amphw.engine.lowering.plan import Plan, Planner
from amphw.engine.policy import BACKWARD, KINDS
from amphw.host.recent import Recent
from amphw.host.records import Slice
from amphw.ir.device import Device
from amphw.ir.graph import Graph
from amphw.ir.service_log import Run
from amphw.page.walk.section import Firing, Frame, Walked, Walkthrough

BACK = KINDS[BACKWARD]


def walkthrough(recent: Recent, graph: Graph, device: Device, slices: Sequence[Slice]) -> Walkthrough | None:
    """All instances whose whole way is in `recent`, in the order in which they were pumped; None: there are
    none, or the log's nodes are not those of the graph. slices: of the trace."""
    lowered = getattr(device, "lowered", None)
    if not isinstance(lowered, Lowered):
        lowered = lower(graph)
    known = {unit.name: unit.index for unit in lowered.units}
    took = {piece.flow_out: piece for piece in slices if piece.flow_out is not None}
    ways = _ways(recent, known, took)
    if not ways:
        return None
    ways.sort(key=lambda way: way.frames[0].number)
    ways = _newest(ways, recent.most)
    planner = Planner(lowered, partial(_Sends.of, lowered))
    walked = []
    for way in ways:
        origins = _origins(lowered, planner.plan(recent.instances[way.run]), way)
        firings = [
            Firing(frame, state, tuple(sorted(set(found))))
            for frame, state, found in zip(way.frames, way.states, origins, strict=True)
        ]
        walked.append(Walked(*way.run, recent.losses.get(way.run, math.nan), firings))
    fields = {unit.name: unit.behaviour.state.names for unit in lowered.units}
    placing = getattr(device, "placing", None)
    return Walkthrough(fields, placing.of if placing is not None else {}, walked)


@dataclass
class _Way:
    """An instance on its way: its firings in the order in which their frames began."""

    run: Run
    frames: list[Frame] = field(default_factory=list)
    units: list[int] = field(default_factory=list)
    states: list[tuple[int, ...]] = field(default_factory=list)


def _ways(recent: Recent, known: Mapping[str, int], took: Mapping[int, Slice]) -> list[_Way]:
    """Those that were pumped and have retired within the events."""
    versions = Counter(recent.updates)
    under_way: dict[Run, _Way] = {}
    done = []
    for event in recent.events:
        if event[0] == "submit":
            under_way[event[1], event[2]] = _Way((event[1], event[2]))
        elif event[0] == "reduced":
            versions[event[1]] += 1
        elif event[0] == "start":
            _, number, node, kind, firings = event
            if node not in known:
                return []
            piece = took.get(number)
            when = (piece.worker, piece.start_us, piece.duration_us) if piece is not None else None
            frame = Frame(number, node, kind, versions[node], len(firings), when)
            for instance, mode, state in firings:
                if (way := under_way.get((instance, mode))) is not None:
                    way.frames.append(frame)
                    way.units.append(known[node])
                    way.states.append(state)
        elif event[0] == "retire" and (way := under_way.pop((event[1], event[2]), None)) is not None:
            if way.frames and way.run in recent.instances:
                done.append(way)
    return done


def _newest(ways: list[_Way], most: int) -> list[_Way]:
    """The last of them, with `most` firings together or, if the last has more, that one."""
    total, first = 0, len(ways)
    while first and (first == len(ways) or total + len(ways[first - 1].frames) <= most):
        first -= 1
        total += len(ways[first].frames)
    return ways[first:]


@dataclass(frozen=True)
class _Sends:
    """Who sends to whom in instances of one structure: for pairs of units, the firings of the first, and of
    the second what each of these sends to, whatever it decides."""

    plan: Plan
    pairs: Sequence[tuple[int, int, np.ndarray, np.ndarray]]

    @classmethod
    def of(cls, lowered: Lowered, plan: Plan) -> _Sends:
        pairs = []
        for unit, table in zip(lowered.units, plan.units, strict=True):
            for path, sent in zip(unit.out, table.paths, strict=True):
                outcome = np.repeat(np.arange(len(sent.start) - 1), np.diff(sent.start))
                if path.target >= 0 and not unit.behaviour.is_source:
                    pairs.append((unit.index, path.target, outcome // unit.decisions, sent.firing))
        return cls(plan, pairs)


def _origins(lowered: Lowered, sends: _Sends, way: _Way) -> list[list[int]]:
    """By firing, the firings that sent it a message.

    Forward that is who the plan has send to it, as far as it has run: of what a node may decide, what it has
    decided. Gradients go the other way; those of a loss come from its own forward firing.
    """
    ahead, back = _places(sends.plan, way, False), _places(sends.plan, way, True)
    found: list[list[int]] = [[] for _ in way.frames]
    for source, target, sender, receiver in sends.pairs:
        inside = receiver >= 0
        sender, receiver = sender[inside], receiver[inside]
        for places, one, other, at, to in (
            (ahead, source, target, sender, receiver),
            (back, target, source, receiver, sender),
        ):
            if one in places and other in places:
                first, then = places[one][at], places[other][to]
                both = (first >= 0) & (then >= 0)
                for k, by in zip(then[both].tolist(), first[both].tolist(), strict=True):
                    found[k].append(by)
    for unit, turned in back.items():
        if unit in ahead and not lowered.units[unit].out:
            begun = ahead[unit]
            for k in np.flatnonzero((turned >= 0) & (begun >= 0)).tolist():
                found[int(turned[k])].append(int(begun[k]))
    return found


def _places(plan: Plan, way: _Way, backward: bool) -> dict[int, np.ndarray]:
    """By unit that has fired in a direction: where each of its states is among the firings; -1: nowhere."""
    found: dict[int, np.ndarray] = {}
    for k, (frame, unit, state) in enumerate(zip(way.frames, way.units, way.states, strict=True)):
        if (frame.kind == BACK) == backward:
            space = plan.units[unit].space
            places = found.setdefault(unit, np.full(space.size, -1, np.int64))
            if (at := space.address_of(state)) >= 0:
                places[at] = k
    return found
