"""Random work for a vector unit: contents of the memory, and commands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from amphw.rtl.gateware.vector.command import VectorShape
from amphw.rtl.isa.commands import CONSTANT_BITS, IndexMode, VectorOp
from sim.models.vector import Command, Walk, execute

EXTREMES = (-32768, -32767, -1, 0, 1, 32766, 32767)


def memory(rng: np.random.Generator, size: int) -> list[int]:
    """Words of every size, extremes often."""
    words = rng.integers(-(1 << 15), 1 << 15, size) >> rng.integers(0, 16, size)
    return np.where(rng.random(size) < 0.3, rng.choice(EXTREMES, size), words).tolist()


def constant(rng: np.random.Generator) -> int:
    high = (1 << (CONSTANT_BITS - 1)) - 1
    if rng.random() < 0.4:
        return int(rng.choice([-high - 1, high, 0, 1, -1, 32767, -32768, 4096]))
    return int(rng.integers(-high - 1, high + 1) >> rng.integers(0, CONSTANT_BITS))


def random_commands(
    rng: np.random.Generator, shape: VectorShape, mem: list[int], pointers: list[int], number: int
) -> list[Command]:
    """Commands that use one another's results; those that need not wait sometimes say so."""
    now, size = list(mem), len(mem)
    unfinished: set[int] = set()
    commands: list[Command] = []
    while len(commands) < number:

        def walk() -> Walk:
            return Walk(int(rng.integers(size)), int(rng.integers(0, 9)), int(rng.choice([0, 1, 1, 1, 2])))

        command = Command(
            VectorOp(int(rng.integers(len(VectorOp)))),
            int(rng.choice([0, 1, 1, 2, 3, 7])),
            int(rng.choice([0, 1, 2, 3, 8, 11])),
            walk(),
            walk(),
            walk(),
            constant(rng),
            int(rng.choice([0, 1, 4, 11, 12, 31])),
            IndexMode(int(rng.integers(len(IndexMode)))),
            index=int(rng.integers(size)),
            scale=int(rng.integers(9)),
            table=int(rng.integers(len(shape.curves))),
        )
        trial = list(now)
        seen = execute(command, trial, pointers, shape.curves)
        if seen.circular:
            continue
        if not seen.reads & unfinished and rng.random() < 0.7:
            command = replace(command, overlap=True)
        else:
            unfinished.clear()
        unfinished |= set(seen.writes)
        now = trial
        commands.append(command)
    return commands
