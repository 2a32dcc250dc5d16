"""Which columns tile code still reads after some point: what nobody reads is not stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from amphw.engine.tiles.code import ATTENTION, Code, Instr, Phase, PhaseKind, Place, Ref


@dataclass(frozen=True, slots=True)
class Region:
    """Columns `start` .. `end` - 1 of a base."""

    base: int
    start: int
    end: int

    def overlaps(self, other: Region) -> bool:
        return self.base == other.base and self.start < other.end and other.start < self.end

    def covers(self, other: Region) -> bool:
        return self.base == other.base and self.start <= other.start and other.end <= self.end


def region(ref: Ref, width: int) -> Region:
    return Region(ref.base, ref.offset, ref.offset + width)


@dataclass(frozen=True)
class Effect:
    """What an instruction, or a phase without instructions, reads and writes."""

    reads: tuple[Region, ...]
    writes: tuple[Region, ...]


def effect_of(instr: Instr) -> Effect:
    writes = (region(instr.d, instr.written),) if instr.written else ()
    return Effect(tuple(region(ref, width) for ref, width in instr.reads()), writes)


def _read_by(phase: Phase) -> Iterator[Region]:
    if phase.kind == PhaseKind.Gemm:
        yield from (region(s.at, s.width) for s in phase.a)
        if phase.start >= 0:
            yield Region(phase.start, 0, phase.width)
        if phase.accumulate:
            yield region(phase.d, phase.width)
    elif phase.kind in ATTENTION:
        yield from (region(s.at, s.width) for s in phase.a)
    else:
        yield region(phase.from_, moved_width(phase))


def moved_width(phase: Phase) -> int:
    """Columns that a row move reads of each row."""
    if not phase.windows:
        return phase.width
    height, width, channels, tall, wide, *_ = phase.windows
    return (height * width if phase.kind == PhaseKind.Patches else tall * wide) * channels


class Liveness:
    """The effects of a code in order. first: of each phase the number of its first one."""

    def __init__(self, code: Code):
        self.code = code
        self.first: list[int] = []
        self.effects: list[Effect] = []
        for phase in code.phases:
            self.first.append(len(self.effects))
            if phase.kind == PhaseKind.Rows:
                self.effects += [effect_of(i) for i in phase.code]
            else:
                self.effects.append(Effect(tuple(_read_by(phase)), (region(phase.d, phase.width),)))

    def needed(self, columns: Region, after: int) -> bool:
        """Whether somebody reads the columns as they are before effect number `after`."""
        for effect in self.effects[after:]:
            if any(read.overlaps(columns) for read in effect.reads):
                return True
            if any(write.covers(columns) for write in effect.writes):
                return False
        return self.code.bases[columns.base].place != Place.Scratch
