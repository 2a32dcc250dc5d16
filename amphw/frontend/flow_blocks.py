"""Which steps of a program are computed in one node: those on rows that follow one another.

A step that mixes positions, loops or decides ends a block. So does a parameter that is used in several of
them: the steps that use it are one layer of their own, which each use calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from amphw.frontend.flow import OPENS, TURNS, Flow, Step, crossing, is_same, weight


class Plan:
    """Of each step on rows the block that it is in, by number; of those that share a parameter their key."""

    def __init__(self, flow: Flow, live: Collection[Step]) -> None:
        self.live = live
        self.shared: dict[Step, Any] = {}
        self.flows = list(_all(flow))
        while True:
            self.block_of: dict[Step, int] = {}
            self.blocks: list[list[Step]] = []
            for each in self.flows:
                self._divide(each)
            again = self._used_apart()
            if not again:
                break
            self.shared |= again

    def _divide(self, flow: Flow) -> None:
        level: dict[Step, int] = {}
        known: dict[Step, Any] = {}
        parent: dict[Step, Step] = {}

        def root(step: Step) -> Step:
            while parent[step] is not step:
                step = parent[step]
            return step

        for step in flow.steps:
            level[step] = max((level.get(x, 0) for x in step.operands), default=0)
            if step.op in OPENS or crossing(step) or step in self.shared:
                level[step] += 1
            if step not in self.live or not is_row(step):
                continue
            parent[step] = step
            apart = step in self.shared
            known[step] = (level[step], frozenset(_symbols(step)), step if apart else None)
            for x in self._sources(step):
                if not apart and x in known and known[x] == known[step]:
                    parent[root(x)] = root(step)
        numbers: dict[Step, int] = {}
        for step in parent:
            if root(step) not in numbers:
                numbers[root(step)] = len(self.blocks)
                self.blocks.append([])
            self.block_of[step] = numbers[root(step)]
            self.blocks[self.block_of[step]].append(step)

    def _sources(self, step: Step) -> Iterator[Step]:
        """The steps on rows that it reads, also through steps that change a shape alone."""
        for x in step.operands:
            yield base(x)

    def _used_apart(self) -> dict[Step, Any]:
        """The steps that use a parameter which another block uses too, and the key of their layer."""
        users: dict[str, list[Step]] = {}
        for block in self.blocks:
            for step in block:
                for name in dict.fromkeys(w.name for x in step.operands if (w := weight_of(x)) is not None):
                    users.setdefault(name, []).append(step)
        found: dict[Step, Any] = {}
        for name, steps in users.items():
            if len({self.block_of[s] for s in steps}) == 1 or all(s in self.shared for s in steps):
                self._refuse_different(name, steps)
                continue
            for step in steps:
                found[step] = key(step)
            self._refuse_different(name, steps, found)
        return {s: k for s, k in found.items() if s not in self.shared}

    def _refuse_different(self, name: str, steps: list[Step], found: dict[Step, Any] | None = None) -> None:
        keys = {**self.shared, **(found or {})}
        apart = [s for s in steps if s in keys]
        if len({keys[s] for s in apart}) > 1:
            first = next(s for s in apart if keys[s] != keys[apart[-1]])
            raise apart[-1].error(
                f"the parameter '{name}' is used here in another way than at {first.place}, in another node; "
                "one layer is one function: use a parameter of its own"
            )


def is_row(step: Step) -> bool:
    """Whether a step is computed in a block."""
    plain = step.kind in ("float", "many") and step.op not in ("input", "weight", "number", *OPENS)
    return plain and not is_same(step) and not crossing(step) and weight_of(step) is None


def base(step: Step) -> Step:
    """The step whose row this one's is."""
    while is_same(step):
        step = step.args[0]
    return step


def key(step: Step) -> Any:
    """What two steps have in common that are the same function of their operands."""

    met: dict[Step, int] = {}

    def plain(x: Any) -> Any:
        if isinstance(x, Step):
            w = weight_of(x)
            if w is not None:
                return "weight", w.name, x.shape
            return "value", x.kind, x.static, met.setdefault(base(x), len(met))
        if isinstance(x, tuple | list):
            return tuple(plain(y) for y in x)
        if isinstance(x, dict):
            return tuple((k, plain(v)) for k, v in x.items())
        return repr(x)

    return step.op, plain(step.args), plain(step.kwargs), step.static


def weight_of(step: Step) -> Any:
    """The parameter that a step is, also turned or with another shape."""
    while step.op in TURNS or is_same(step):
        step = step.args[0]
    return weight(step)


def _symbols(step: Step) -> tuple[str, ...]:
    """Of a step with several results those of its first operand."""
    if step.shape is None:
        return next((x.symbols for x in step.operands if x.shape is not None and x.op != "weight"), ())
    return step.symbols


def _all(flow: Flow) -> Iterator[Flow]:
    yield flow
    for step in flow.steps:
        for x in step.args:
            if isinstance(x, Flow):
                yield from _all(x)
