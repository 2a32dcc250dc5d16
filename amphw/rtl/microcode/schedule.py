"""The order of a program's commands: the engines take turns as seldom as their results allow.

One engine works at a time, and the other waits until every word is written: some twenty cycles, in which a
message of a small model is computed. Commands of one engine follow each other closely.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from amphw.rtl.microcode.abstract import Command, LaneCommand, VectorCommand, depend


def scheduled(commands: Sequence[Command]) -> list[Command]:
    """The same commands with fewer turns, or as they are where there are no fewer.

    Each engine keeps the order of its own: sums of gradients saturate in it. What a command reads was written
    before, and what it writes was read.
    """
    orders = [list(commands), *(_begun_by(engine, commands) for engine in (VectorCommand, LaneCommand))]
    return min(orders, key=_turns)  # the first of equals


def _turns(commands: Sequence[Command]) -> int:
    return sum(type(a) is not type(b) for a, b in pairwise(commands))


def _begun_by(engine: type[Command], commands: Sequence[Command]) -> list[Command]:
    """Each engine goes on for as long as it can; `engine` begins if it can.

    If the next command of one has to wait for the other's, the next of that has to wait for none: of all
    that are left, the first in the given order can always be next.
    """
    others = {VectorCommand: LaneCommand, LaneCommand: VectorCommand}
    left = {kind: deque(k for k, c in enumerate(commands) if type(c) is kind) for kind in others}
    out: list[int] = []
    while len(out) < len(commands):
        mine, theirs = left[engine], left[others[engine]]
        if not mine or any(k < mine[0] and depend(commands[k], commands[mine[0]]) for k in theirs):
            engine = others[engine]
        else:
            out.append(mine.popleft())
    return [commands[k] for k in out]
