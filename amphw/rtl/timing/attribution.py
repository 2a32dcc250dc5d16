"""Which nodes of a model a part of the hardware works for: what a critical path means for the model.

Nodes share almost all hardware. A node has logic of its own only where its state's expressions are computed,
in the controller; registers there are named after their nodes. Elsewhere the nodes are those whose programs
use the part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from amphw.ir.expr import Expr, Op
from amphw.rtl.isa.commands import Code, Unit, decode
from amphw.rtl.plan.control import ControlPlan
from amphw.rtl.plan.hardware import HardwarePlan

_PART = re.compile(r"(?:design\.)?(?:device\.)?([A-Za-z_]+)")
_NUMBERED = re.compile(r"(\$\d+)?(\[\d+\])?$")
"""What is put behind a name that occurs again, and behind that of a bit."""

_NAMED = 4
"""Nodes that a signal's name lists at most; what more of them share is nobody's own."""


@dataclass(frozen=True)
class Share:
    """A part of the device (`lanes`, `vector`, `controller` ...), and the nodes that it works for.

    own: whether the logic is there for these nodes alone; else they and others take turns.
    """

    part: str
    nodes: tuple[str, ...]
    own: bool


def signals_of_nodes(plan: ControlPlan) -> dict[Expr, str]:
    """Names for registers of the control programs' expressions: `of_` and the nodes that need them."""
    return {e: _signal(nodes) for e, nodes in _expressions(plan).items() if len(nodes) <= _NAMED}


def _signal(nodes: Iterable[str]) -> str:
    return "of_" + "_and_".join(re.sub(r"\W+", "_", name) for name in nodes)


def _expressions(plan: ControlPlan) -> dict[Expr, tuple[str, ...]]:
    """Every expression and part of one, and the nodes whose control programs compute it, in order."""
    found: dict[Expr, dict[str, None]] = {}

    def note(e: Expr, node: str) -> None:
        found.setdefault(e, {})[node] = None
        if isinstance(e, Op):
            for part in e.args:
                note(part, node)

    units = plan.partition.lowered.units
    starts = {at: units[u].name for (u, _), at in plan.entries.items()}
    node = ""
    for at, step in enumerate(plan.steps):
        node = starts.get(at, node)
        for e in (step.a, step.b, step.c, step.d, step.e):
            if e is not None:
                note(e, node)
    return {e: tuple(nodes) for e, nodes in found.items()}


def shares(signals: Iterable[str], plan: HardwarePlan) -> list[Share]:
    """The parts that signals (as in `Synthesis.critical_signals`) lie in, in order, with their nodes."""
    own = {_signal(nodes): nodes for nodes in _expressions(plan.control).values() if len(nodes) <= _NAMED}
    users = _users(plan)
    found: dict[Share, None] = {}
    for signal in signals:
        match = _PART.match(signal)
        if match is None:
            continue
        part = match[1]
        name = _NUMBERED.sub("", signal.rpartition(".")[2])
        nodes = own.get(name) if part == "controller" else None
        found[Share(part, nodes or users.get(part, users[""]), nodes is not None)] = None
    return list(found)


def _users(plan: HardwarePlan) -> dict[str, tuple[str, ...]]:
    """Per part, the nodes whose programs use it; "" stands for all other parts, which serve every node."""
    units = plan.partition.units
    engines: dict[Unit, dict[str, None]] = {unit: {} for unit in Unit}
    for unit in units:
        code = plan.codes[unit.index]
        for program in (code.forward, code.inference, code.backward):
            for i in decode(program.words):
                if i.code == Code.ISSUE:
                    engines[Unit(i["unit"])][unit.name] = None
    return {
        "lanes": tuple(engines[Unit.LANES]),
        "vector": tuple(engines[Unit.VECTOR]),
        "keeper": tuple(u.name for u in units if u.index in plan.rules),
        "": tuple(u.name for u in units),
    }
