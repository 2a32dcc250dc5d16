"""A netlist as a machine of states: its registers, its logic as gates, and where a difference can be seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from amphw.rtl.mutation.gates import Cell, Gates, Undecided, ends, mapped, slot
from amphw.rtl.mutation.netlist import Mutant, Netlist

MEANS = {"payload": "valid", "addr": "en", "data": "en", "index": "en"}
"""Ends of names of outputs that mean something while another output is set."""

_STATES = 8  # bits of the widest register of a state machine
_COUNTS, _PHASES = 4, 40  # bits of the widest counter by which registers take turns, and bits of all of these
_CLOCKS = frozenset({"CLK", "RD_CLK"})
_CONFLICTS = 10_000  # of a question about states
_REGISTERS = ("$dff", "$adff", "$aldff", "$dlatch", "$sr", "$ff")

Pin = tuple[str, str, int]
"""A cell, its port and a place there; an output of the circuit itself is of the cell ""."""


@dataclass(frozen=True)
class Sink:
    """What must be the same: a pin that counts while one of others is set, if there are any.

    may: registers' bits, or bits that are read from a memory, that differ once this does; None: what differs
    here can be seen. stepwise: the one register in `may` takes this with the next clock, and keeps nothing.
    """

    what: Pin
    when: tuple[Pin, ...] = ()
    may: tuple[int, ...] | None = None
    stepwise: bool = False


@dataclass(frozen=True)
class Guard:
    """Something that a state of the circuit is or is not: literals of it now, and after the next clock."""

    now: int
    then: int


@dataclass(frozen=True)
class _Condition:
    """That registers of an instance have a code."""

    code: int
    bits: tuple[int, ...]
    where: str
    clock: Any


@dataclass(frozen=True)
class Inverted:
    """A bit, `what`, that a fault inverts: always, or while the bit `by` is `when`."""

    what: int
    by: int | None
    when: bool


@dataclass(frozen=True)
class Renamed(Inverted):
    """A memory whose words are kept elsewhere, a bit of its address being inverted. pins: where it is so.
    register: the address's register has it inverted already."""

    pins: frozenset[Pin]
    register: bool


@dataclass(frozen=True)
class Turned(Inverted):
    """A register's bit that is inverted each time that the register is held; `by` may be another's. After an
    even number of cycles it is right again. phases: states in which it may be the one or the other."""

    phases: tuple[_Condition, ...]


class Machine:
    """cells: of the netlist. logic: those without a state, as gates."""

    def __init__(self, netlist: Netlist) -> None:
        self.netlist = netlist
        self.cells: Mapping[str, Cell] = netlist.module["cells"]
        self.logic = mapped({name: cell for name, cell in self.cells.items() if not stateful(cell)})
        self.sinks = tuple(self._sinks())
        self.registers = dict(self._registers())
        self.stepwise = frozenset(self.registers)
        self.looked: dict[int, list[int]] = {}  # by bit, the numbers of the sinks that look at it
        self.given_by: dict[int, list[int]] = {}  # and of those after which it may differ
        for number, sink in enumerate(self.sinks):
            for pin in (sink.what, *sink.when):
                self.looked.setdefault(self.bit(pin), []).append(number)
            for bit in sink.may or ():
                self.given_by.setdefault(bit, []).append(number)

    def values(self, gates: Gates) -> dict[int, int]:
        """A literal for each bit; those that nothing drives are free."""
        known = {bit: gates.free() for bit in sorted(self._given)}
        gates.evaluate(self.logic, known)
        return known

    @cached_property
    def _given(self) -> set[int]:
        """All bits that logic does not make."""
        made = {what for what, _, _ in self.logic.gates}
        everything = {
            bit for cell in self.cells.values() for bits in cell["connections"].values() for bit in bits
        }
        everything |= {bit for port in self.netlist.module["ports"].values() for bit in port["bits"]}
        return {bit for bit in everything if isinstance(bit, int)} - made

    def bit(self, pin: Pin) -> int:
        cell, port, place = pin
        bit = (
            self.cells[cell]["connections"][port][place]
            if cell
            else self.netlist.module["ports"][port]["bits"][place]
        )
        return slot(bit)

    def port(self, mutant: Mutant) -> Cell:
        """The port of a register or a memory that has the fault, as a cell of logic with bits of its own."""
        about = self.cells[mutant.cell]
        bits = about["connections"][mutant.port]
        fresh = 1 + max(self._given | {what for what, _, _ in self.logic.gates})
        return {
            "type": "$pos",
            "parameters": {"A_SIGNED": 0, "A_WIDTH": len(bits), "Y_WIDTH": len(bits)},
            "attributes": {},
            "port_directions": {"A": "input", "Y": "output"},
            "connections": {"A": bits, "Y": list(range(fresh, fresh + len(bits)))},
        }

    # --- where differences go ---------------------------------------------------------------------

    def _registers(self) -> Iterator[tuple[int, tuple[int, Any]]]:
        """Of each bit of a register what it takes, and its clock."""
        for cell in self.cells.values():
            if cell["type"] == "$dff":
                at = cell["connections"]
                clock = at["CLK"][0], cell["parameters"]["CLK_POLARITY"]
                for d, q in zip(at["D"], at["Q"], strict=True):
                    yield q, (slot(d), clock)

    def _sinks(self) -> Iterator[Sink]:
        """What registers and memories are given, and what leaves the circuit."""
        for name, cell in self.cells.items():
            if not stateful(cell) or cell["type"].startswith("$meminit"):
                continue
            at = cell["connections"]
            if cell["type"] == "$dff":
                for place, q in enumerate(at["Q"]):
                    yield Sink((name, "D", place), (), (q,), True)
            elif cell["type"].startswith("$memwr"):
                pins = [(name, "EN", place) for place in range(len(at["EN"]))]
                once = tuple({at["EN"][pin[2]]: pin for pin in reversed(pins)}.values())
                yield from (Sink(pin) for pin in once)
                yield from (Sink((name, "ADDR", place), once) for place in range(len(at["ADDR"])))
                for place, pin in enumerate(pins):
                    yield Sink((name, "DATA", place), (pin,), self._read_back(cell, place))
            else:
                # What is read from a memory, and registers with more inputs than a clock and a value.
                given = tuple(ends(cell, "output"))
                for port in sorted(cell["port_directions"]):
                    if cell["port_directions"][port] == "input" and port not in _CLOCKS:
                        yield from (Sink((name, port, place), (), given) for place in range(len(at[port])))
        ports = self.netlist.module["ports"]
        outputs = {name: port["bits"] for name, port in ports.items() if port["direction"] == "output"}
        for name, bits in outputs.items():
            stem, _, end = name.rpartition("_")
            guard = f"{stem}_{MEANS.get(end)}"
            when = tuple(("", guard, place) for place in range(len(outputs.get(guard, ()))))
            yield from (Sink(("", name, place), when) for place in range(len(bits)))

    def _read_back(self, writes: Cell, place: int) -> tuple[int, ...] | None:
        """What is read of a bit that a memory is given, by ports of the same width; None of another one."""
        reads = [
            cell["connections"]["DATA"]
            for cell in self.cells.values()
            if cell["type"].startswith("$memrd")
            and cell["parameters"]["MEMID"] == writes["parameters"]["MEMID"]
        ]
        if any(len(data) != len(writes["connections"]["DATA"]) for data in reads):
            return None
        return tuple(data[place] for data in reads if isinstance(data[place], int))

    # --- memories in another order ------------------------------------------------------------------

    def renamed(self, mutant: Mutant) -> Renamed | None:
        """What the fault would be if all that it did was to keep a memory's words at other addresses."""
        cell = self.cells[mutant.cell]
        if cell["port_directions"][mutant.port] == "input" and cell["type"] != "$dff":
            return None
        if (inverted := self._inverted(mutant)) is None:
            return None
        changed, other = inverted
        for addresses in self._addresses.values():
            behind = [next((q for q, (d, _) in self.registers.items() if d == bit and q in addresses), None)
                      for bit in (changed, other)]  # fmt: skip
            before = [bit if bit in addresses else None for bit in (changed, other)]
            for (what, by), register in ((behind, True), (before, False)):
                if what is not None and (other is None) == (by is None):
                    pins = {(name, "ADDR", at) for name, at in self._asked_at(what)}
                    if register:
                        pins |= {pin for pin, sink in self._takes.items() if sink == what}
                    return Renamed(what, by, mutant.mode != "cnot0", frozenset(pins), register)
        return None

    @cached_property
    def _takes(self) -> dict[Pin, int]:
        """Of each place of a register's input the bit that takes it."""
        return {sink.what: sink.may[0] for sink in self.sinks if sink.stepwise and sink.may}

    def _asked_at(self, bit: int) -> Iterator[tuple[str, int]]:
        for name, cell in self.cells.items():
            if cell["type"].startswith(("$memrd", "$memwr")):
                yield from ((name, at) for at, each in enumerate(cell["connections"]["ADDR"]) if each == bit)

    @cached_property
    def _addresses(self) -> dict[str, set[int]]:
        """Of each memory whose ports all have the same address, and whose words all begin as the same, the
        address's bits."""
        ports: dict[str, list[Cell]] = {}
        for cell in self.cells.values():
            if cell["type"].startswith("$mem"):
                ports.setdefault(cell["parameters"]["MEMID"], []).append(cell)
        found = {}
        for name, cells in ports.items():
            asked = [tuple(c["connections"]["ADDR"]) for c in cells if not c["type"].startswith("$meminit")]
            begins = {
                bit for c in cells if c["type"].startswith("$meminit") for bit in c["connections"]["DATA"]
            }
            if len(set(asked)) == 1 and len(begins - {"x"}) <= 1:
                found[name] = {bit for bit in asked[0] if isinstance(bit, int)}
        return found

    def _inverted(self, mutant: Mutant) -> tuple[Any, Any] | None:
        """The bit that a fault inverts, and the one that says when, None if it always does."""
        if mutant.mode not in ("inv", "cnot0", "cnot1"):
            return None
        bits = self.cells[mutant.cell]["connections"][mutant.port]
        return bits[mutant.bit], bits[mutant.other] if mutant.other >= 0 else None

    # --- states -----------------------------------------------------------------------------------

    def turned(self, mutant: Mutant) -> Turned | None:
        """What the fault would be if all that it did was to invert a register's bit while it is held."""
        if (inverted := self._inverted(mutant)) is None:
            return None
        takers = {d: q for q, (d, _) in self.registers.items() if isinstance(d, int)}
        what, by = (bit if bit in self.registers else takers.get(bit) for bit in inverted)
        if what is None or (by is None) != (inverted[1] is None):
            return None
        if by is not None and self.registers[by][1] != self.registers[what][1]:
            return None  # what is inverted would change with another clock, too
        return Turned(what, by, mutant.mode != "cnot0", tuple(self._phases(what)))

    def _phases(self, bit: int) -> Iterator[_Condition]:
        """The states of every two bits of the small registers in its instance; of each bit alone where there
        is one, or too many pairs."""
        where, clock = self._where(bit), self.registers[bit][1]
        small = [
            each
            for cell in self.cells.values()
            if cell["type"] == "$dff" and len(cell["connections"]["Q"]) <= _COUNTS
            for each in cell["connections"]["Q"]
            if self._where(each) == where and self.registers[each][1] == clock
        ]
        for bits in combinations(small, 2 if 1 < len(small) <= _PHASES else 1):
            yield from (_Condition(code, bits, where, clock) for code in range(1 << len(bits)))

    @cached_property
    def _conditions(self) -> list[_Condition]:
        """Of each guard what it is about."""
        found: list[_Condition] = []
        for cell in self.cells.values():
            if cell["type"] != "$dff":
                continue
            bits = tuple(cell["connections"]["Q"])
            name = self.netlist.names.get(bits[0], ("", 0))[0]
            about = bits, self._where(bits[0]), self.registers[bits[0]][1]
            if len(bits) == 1 or (name.endswith("state") and len(bits) <= _STATES):
                found += [_Condition(code, *about) for code in range(1 << len(bits))]
        return found

    def _where(self, bit: int) -> str:
        """The path of the instance that a register is in."""
        return self.netlist.names.get(bit, ("", 0))[0].rpartition(".")[0]

    def guards(
        self, gates: Gates, values: Mapping[int, int], about: Sequence[_Condition] | None = None
    ) -> list[Guard]:
        """The guards of all registers, or of these conditions."""

        def holds(condition: _Condition, then: bool) -> int:
            return gates.all(
                values[self.registers[bit][0] if then else bit] ^ (not condition.code >> place & 1)
                for place, bit in enumerate(condition.bits)
            )

        which = self._conditions if about is None else about
        return [Guard(holds(each, False), holds(each, True)) for each in which]

    @cached_property
    def never(self) -> frozenset[int]:
        """The numbers of guards that induction shows to hold in no state that the circuit gets into."""
        gates = Gates()
        values = self.values(gates)
        guards = self.guards(gates, values)
        left = {number for number, each in enumerate(self._conditions) if not self.begins(each)}
        active = {number: gates.free() for number in left}
        for number, literal in active.items():
            gates.know(guards[number].then)
            gates.tell(literal ^ 1, guards[number].now ^ 1)
        while left:
            asked = gates.free()
            gates.tell(asked ^ 1, *(guards[number].then for number in left))
            try:
                model, _ = gates.ask(asked, *(active[number] for number in left), conflicts=_CONFLICTS)
            except Undecided:
                return frozenset()
            if model is None:
                break
            left -= {number for number in left if model[guards[number].then]}
        return frozenset(left)

    def begins(self, condition: _Condition) -> bool:
        """Whether it may hold in the beginning."""
        return all(
            self._initial.get(bit, "x") in ("x", str(condition.code >> place & 1))
            for place, bit in enumerate(condition.bits)
        )

    @cached_property
    def _initial(self) -> dict[int, str]:
        found: dict[Any, str] = {}
        for net in self.netlist.module["netnames"].values():
            if init := net.get("attributes", {}).get("init"):
                found.update(zip(net["bits"], reversed(str(init)), strict=False))
        return found

    def guards_of(self, bit: int) -> list[int]:
        """The numbers of the guards of a register: those of its clock, in its instance or around or in that;
        none for what is read from a memory."""
        if bit not in self.registers:
            return []
        here, clock = self._where(bit), self.registers[bit][1]
        return [
            number
            for number, each in enumerate(self._conditions)
            if each.clock == clock and (_within(each.where, here) or _within(here, each.where))
        ]


def stateful(cell: Cell) -> bool:
    return str(cell["type"]).startswith((*_REGISTERS, "$mem"))


def _within(path: str, other: str) -> bool:
    return not other or path == other or path.startswith(f"{other}.")
