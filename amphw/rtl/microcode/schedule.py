"""The order of a program's commands, such that they wait little for each other.

One engine works at a time. The other has its turn once every word is written, which costs about twenty
cycles, as many as a vector of eight numbers takes. A vector command that reads what others have yet to write
waits until all before it have written, which costs about ten; the rest follow each other closely.
"""

from __future__ import annotations

from collections.abc import Sequence

from amphw.rtl.microcode.abstract import Command, LaneCommand, VectorCommand, depend
from amphw.rtl.microcode.scratch import scratch_room
from amphw.rtl.microcode.timing import LANES_END, VECTOR_ROW, VECTOR_WRITE
from amphw.rtl.plan.records import RowSpaces

TURN, WRITTEN = LANES_END, VECTOR_WRITE - VECTOR_ROW
"""Cycles that are lost, about: between the engines, and until vector commands have written."""

AHEAD = (1, 2, 3, 4, 6, 9, 64)
"""How far a command may come before its time: the further, the more results lie in scratch at once."""


def scheduled(commands: Sequence[Command], spaces: RowSpaces) -> list[Command]:
    """The same commands in an order that loses fewer cycles and takes no more scratch, if one is found.

    It is the best of a few that are put together greedily. What a command reads was written before, and what
    it writes was read. The lane engine keeps its order: sums of gradients saturate in it.
    """
    some, given = _Commands(commands), list(range(len(commands)))
    orders = [some.begun_by(engine, ahead) for engine in (VectorCommand, LaneCommand) for ahead in AHEAD]
    room = scratch_room(commands, spaces)
    # Of equals the first: what gains nothing stays as it is. What is given has room.
    for order in sorted([given, *orders], key=some.lost):
        found = [commands[k] for k in order]
        if scratch_room(found, spaces).fits(room):
            break
    return found


class _Commands:
    """What each command waits for, by their numbers. needs: those that must come before it. reads: those that
    write what it reads. chain: the length of the longest chain of commands that wait for it."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self.engines = [type(c) for c in commands]
        self.needs: list[set[int]] = []
        self.reads: list[set[int]] = []
        for second in commands:
            before = range(len(self.needs))
            self.needs.append({k for k in before if _before(commands[k], second)})
            writes = [(k, written) for k in before for written in commands[k].writes]
            self.reads.append({k for k, written in writes if any(a.meets(written) for a in second.reads)})
        self.chain = [0] * len(commands)
        for k in reversed(range(len(commands))):
            for earlier in self.needs[k]:
                self.chain[earlier] = max(self.chain[earlier], self.chain[k] + 1)

    def lost(self, order: Sequence[int]) -> int:
        """Cycles in which a sequence waits."""
        lost, unwritten = 0, set[int]()
        for before, k in zip([None, *order], order, strict=False):
            if before is not None and self.engines[before] is not self.engines[k]:
                lost, unwritten = lost + TURN, set()
            elif not unwritten.isdisjoint(self.reads[k]):
                lost, unwritten = lost + WRITTEN, set()
            if self.engines[k] is VectorCommand:
                unwritten.add(k)
        return lost

    def begun_by(self, engine: type[Command], ahead: int) -> list[int]:
        """An order, chosen command by command.

        The engine at work goes on while one of its next `ahead` commands can; `engine` begins. Of these comes
        first what reads nothing that is yet to be written, and of those what begins the longest chain.
        """
        left, out, unwritten = list(range(len(self.engines))), list[int](), set[int]()
        while left:
            mine = [k for k in left if self.engines[k] is engine][:ahead]
            ready = [k for k in mine if self.needs[k].isdisjoint(left)]
            if not ready:
                engine, unwritten = LaneCommand if engine is VectorCommand else VectorCommand, set()
                continue
            chosen = max(ready, key=lambda k: (unwritten.isdisjoint(self.reads[k]), self.chain[k], -k))
            if not unwritten.isdisjoint(self.reads[chosen]):
                unwritten = set()
            if engine is VectorCommand:
                unwritten.add(chosen)
            left.remove(chosen)
            out.append(chosen)
        return out


def _before(first: Command, second: Command) -> bool:
    """Whether two commands must stay in their order."""
    both = isinstance(first, LaneCommand) and isinstance(second, LaneCommand)
    return both or depend(first, second)
