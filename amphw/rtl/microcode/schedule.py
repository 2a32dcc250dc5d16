"""The order of a program's commands: as little waiting as their results allow.

One engine works at a time, and the other waits until every word is written: some twenty cycles, as long as a
vector of eight takes. A vector command that reads what others have yet to write waits until all before it
have written, about ten cycles; the rest follow each other closely.
"""

from __future__ import annotations

from collections.abc import Sequence

from amphw.rtl.microcode.abstract import Command, LaneCommand, VectorCommand, depend

TURN, WRITTEN = 20, 9
"""Cycles that are lost, about: between the engines, and until vector commands have written."""


def scheduled(commands: Sequence[Command]) -> list[Command]:
    """The same commands in an order that loses fewer cycles, or as they are where there is none.

    What a command reads was written before, and what it writes was read. The lane engine keeps its order:
    sums of gradients saturate in it.
    """
    orders = [list(commands), *(_begun_by(engine, commands) for engine in (VectorCommand, LaneCommand))]
    return min(orders, key=_lost)  # the first of equals


def _lost(commands: Sequence[Command]) -> int:
    """Cycles in which a sequence waits."""
    lost, before, unwritten = 0, None, list[Command]()
    for command in commands:
        if before is not None and type(command) is not type(before):
            lost, unwritten = lost + TURN, []
        if _reads(command, unwritten):
            lost, unwritten = lost + WRITTEN, []
        if isinstance(command, VectorCommand):
            unwritten.append(command)
        before = command
    return lost


def _begun_by(engine: type[Command], commands: Sequence[Command]) -> list[Command]:
    """One command after another: of the engine that is at work, while it has any; one that waits for nothing,
    while there is any; and of these the one that begins the longest chain of others. `engine` begins."""
    count = len(commands)
    needs = [{j for j in range(k) if _before(commands[j], commands[k])} for k in range(count)]
    chain = [0] * count
    for k in reversed(range(count)):
        for j in needs[k]:
            chain[j] = max(chain[j], chain[k] + 1)
    left, out, unwritten = list(range(count)), list[Command](), list[Command]()
    while left:
        ready = [k for k in left if needs[k].isdisjoint(left) and type(commands[k]) is engine]
        if not ready:
            engine, unwritten = LaneCommand if engine is VectorCommand else VectorCommand, []
            continue
        chosen = max(ready, key=lambda k: (not _reads(commands[k], unwritten), chain[k], -k))
        command = commands[chosen]
        if _reads(command, unwritten):
            unwritten = []
        if isinstance(command, VectorCommand):
            unwritten.append(command)
        left.remove(chosen)
        out.append(command)
    return out


def _reads(command: Command, others: Sequence[Command]) -> bool:
    """Whether it reads what one of the others writes."""
    return any(a.meets(b) for a in command.reads for other in others for b in other.writes)


def _before(first: Command, second: Command) -> bool:
    """Whether two commands must stay in their order."""
    both = isinstance(first, LaneCommand) and isinstance(second, LaneCommand)
    return both or depend(first, second)
