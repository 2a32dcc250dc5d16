"""Proofs that a fault changes nothing that can be seen: of survivors that no bench could ever notice.

First by the circuit's shape: a bit that nothing looks at, however far it goes. Then by induction, for what
logic does to it: the circuit with the fault and the one without are given the same, from the same state on.
At first all registers are taken to be the same in both. Whenever the solver finds a step after which one
differs, it may differ from then on, but for the states of the circuit (of its state machines, and of each
register of one bit) in which it has not been seen to differ; those go one after another, too. Once no further
step is found, it is an induction: if nothing that leaves the circuit, or says where a memory is written,
ever differs, the fault is equivalent. What is not offered, or not written, need not be the same.

A fault may also invert a bit of a register each time that it is held, which is no difference to whoever
looks after an even number of cycles: such a bit is, in some states, known to be inverted.

A memory may also keep its words at other addresses than without the fault, if all who use it do the same.

Of the states that the circuit never gets into only those of one state machine or register of one bit are left
out (`Machine.never`), and those of two bits in which a register would be both the same and inverted; others
count as well, so what is not proved may still be equivalent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from amphw.rtl.mutation.gates import FALSE, TRUE, Gates, Model, Undecided, ends, mapped
from amphw.rtl.mutation.machine import Inverted, Machine, Pin, Renamed, stateful
from amphw.rtl.mutation.netlist import Mutant, Netlist

_ROUNDS, _CONFLICTS, _MOST = 3000, 10_000, 1000
"""Questions to the solver about a fault, its work for all of them, bits that may differ; more is no proof."""

_CARRIES = frozenset({"$add", "$sub", "$mul"})
_BITWISE = frozenset({"$and", "$or", "$xor", "$xnor", "$not", "$mux", "$pmux", "$pos"})


class Prover:
    """A circuit whose faults are to be proved to be equivalent. Raises ToolchainError where Yosys fails."""

    def __init__(self, netlist: Netlist) -> None:
        self.machine = Machine(netlist)

    def equivalent(self, mutant: Mutant, rounds: int = _ROUNDS) -> bool:
        """Whether it is proved, within so many questions."""
        machine = self.machine
        if unseen(machine, mutant) or _Induction(machine, mutant).holds(rounds):
            return True
        renamed = machine.renamed(mutant)
        return renamed is not None and _Induction(machine, mutant, renamed).holds(rounds)


@dataclass
class _Apart:
    """What may differ of a register: its value in the circuit with the fault, whether that is the same, and
    the guards under which it is, by number; whether it is what the fault makes of the same, and the guards
    under which it is that. Without guards it may always differ."""

    theirs: int
    same: int
    guards: set[int]
    turned: int = FALSE
    turns: set[int] = field(default_factory=set)

    def claims(self) -> Iterator[tuple[bool, int, set[int]]]:
        """What is claimed of it, the same and then turned: whether it is the turned claim, a literal that it
        holds, and the guards under which it must."""
        yield False, self.same, self.guards
        yield True, self.turned, self.turns


class _Induction:
    """Of one fault. theirs: the literals that are others than `values` in the circuit with it, by bit.
    entered: of a fault in what a register or a memory is given, that, by place."""

    def __init__(self, machine: Machine, mutant: Mutant, renamed: Renamed | None = None) -> None:
        self.machine, self.mutant, self.renamed = machine, mutant, renamed
        self.gates = gates = Gates()
        self.values = machine.values(gates)
        self.guards = machine.guards(gates, self.values)
        self._turned = turned = machine.turned(mutant)
        self._phases: set[int] = set()  # the numbers of guards that may tell the one from the other
        self._first: set[int] = set()  # those that may hold in the beginning
        if turned is not None:
            phases = list(enumerate(turned.phases, len(self.guards)))
            self._phases = {number for number, _ in phases}
            self._first = {number for number, each in phases if machine.begins(each)}
            self.guards += machine.guards(gates, self.values, turned.phases)
        for guard in self.guards:
            gates.know(guard.now, guard.then)
        for number in machine.never:
            gates.tell(self.guards[number].now ^ 1)
        self.apart: dict[int, _Apart] = {}
        self.theirs: dict[int, int] = {}
        self.entered: dict[int, int] = {}
        self._active: dict[tuple[int, int, bool], int] = {}
        self._differs: dict[int, int] = {}  # of each sink, by number, if something may differ there
        self._asked: dict[int, int] = {}  # the same, but for what may differ by now
        self._left = _CONFLICTS
        cell = machine.cells[mutant.cell]
        self._stateful = stateful(cell)
        self._enters = cell["port_directions"][mutant.port] == "input"
        self._leaves = self._stateful and not self._enters
        if self._stateful:
            cell = machine.port(mutant)
            mutant = replace(mutant, port="A" if self._enters else "Y")
        self._cell = cell
        self._fault = mapped({mutant.cell: cell}, mutant)

    def holds(self, rounds: int) -> bool:
        """Whether the proof is found."""
        if self._goes_round():
            return False
        self._look(self._rename() | self._put_in())
        for _ in range(rounds):
            if not self._asked:
                return True
            try:
                model = self._case()
            except Undecided:
                return False
            if model is None:
                return True
            fresh: set[int] = set()
            for number, literal in list(self._asked.items()):
                if model[literal]:
                    may = self.machine.sinks[number].may
                    if may is None:
                        return False
                    fresh |= self._may_differ(may, model)
            if len(self.apart) > _MOST or (
                self.renamed and self.apart.keys() & {self.renamed.what, self.renamed.by}
            ):
                return False
            if fresh:
                self._look(self._follow(fresh))
        return False

    def _rename(self) -> set[int]:
        """Have a memory's register hold other addresses; -> the bits that are others then, or are looked at
        as if they were."""
        renamed = self.renamed
        if renamed is None:
            return set()
        what = renamed.what
        looked = {self.machine.bit(pin) for pin in renamed.pins}
        if not renamed.register:
            return looked
        values = self.values
        self.theirs[what] = self.gates.differ(values[what], self._inverts(renamed, then=False))
        return looked | {what} | self.gates.follow(self.machine.logic, values, self.theirs, {what}, ())

    # --- the circuit with the fault ---------------------------------------------------------------

    def _goes_round(self) -> bool:
        """Whether a cell's fault depends on what the cell gives, as one of its other bits may."""
        if self._stateful:
            return False
        logic = self.machine.logic
        behind = {logic.gates[place][0] for place in logic.behind(ends(self._cell, "output"))}
        return not behind.isdisjoint(ends(self._cell, "input"))

    def _put_in(self) -> set[int]:
        """Give the fault what is known by now; -> the bits that become others."""
        # A fault behind registers is given what they hold, not what is seen of them.
        stored = {bit: each.theirs for bit, each in self.apart.items()}
        known = self.theirs if not self._leaves else stored
        given = {bit: known.get(bit, self.values[bit]) for bit in self._fault.given}
        self.gates.evaluate(self._fault, given)
        port = self._cell["connections"]
        if self._stateful and self._enters:
            self.entered = {place: given[bit] for place, bit in enumerate(port["Y"])}
            return set(ends(self._cell, "input"))
        if self._leaves:
            made = {bit: given[to] for bit, to in zip(port["A"], port["Y"], strict=True)}
        else:
            made = {bit: given[bit] for bit in ends(self._cell, "output")}
        fresh = {bit for bit, literal in made.items() if literal != self.theirs.get(bit, self.values[bit])}
        self.theirs.update((bit, made[bit]) for bit in fresh)
        return fresh | self.gates.follow(self.machine.logic, self.values, self.theirs, fresh, made)

    def _follow(self, bits: set[int]) -> set[int]:
        """What changes once registers may differ, in which nothing else has changed."""
        seen = bits - set(self._cell["connections"]["A"]) if self._leaves else bits
        self.theirs.update((bit, self.apart[bit].theirs) for bit in seen)
        but = () if self._stateful else ends(self._cell, "output")
        changed = self.gates.follow(self.machine.logic, self.values, self.theirs, seen, but)
        return seen | changed | self._put_in()

    # --- what is asked ----------------------------------------------------------------------------

    def _look(self, changed: set[int]) -> None:
        """What may differ where bits have become others."""
        for number in sorted({n for bit in changed for n in self.machine.looked.get(bit, ())}):
            sink = self.machine.sinks[number]
            (ours, other), *when = (self._both(pin) for pin in (sink.what, *sink.when))
            if when:
                ours = self.gates.both(ours, self.gates.either(each for each, _ in when))
                other = self.gates.both(other, self.gates.either(each for _, each in when))
            self._differs[number] = self.gates.differ(ours, other)
            self._ask_of(number)

    def _both(self, pin: Pin) -> tuple[int, int]:
        bit = self.machine.bit(pin)
        ours, theirs = self.values[bit], self.theirs.get(bit, self.values[bit])
        if self.renamed and pin in self.renamed.pins:
            inverts = self._inverts(self.renamed, then=pin[1] != "ADDR")
            ours = self.gates.differ(ours, inverts)
        if self.entered and pin[:2] == (self.mutant.cell, self.mutant.port):
            theirs = self.entered[pin[2]]
        return ours, theirs

    def _ask_of(self, number: int) -> None:
        """Whether a sink differs, unless what may differ then may already."""
        sink, literal = self.machine.sinks[number], self._differs.get(number, FALSE)
        self._asked.pop(number, None)
        claimed = sink.stepwise and sink.may and sink.may[0] in self.apart and self.apart[sink.may[0]].turns
        if literal == FALSE and not claimed:  # what is the same may still not be turned
            return
        if sink.may is None:
            self._asked[number] = literal
        elif not sink.stepwise or sink.may[0] not in self.apart:
            if any(bit not in self.apart or self.apart[bit].guards for bit in sink.may):
                self._asked[number] = literal
        else:
            cases = []
            for wrong, guards in self._wrong(sink.may[0], literal):
                if guards:
                    cases.append(asked := self.gates.free())
                    self.gates.tell(asked ^ 1, wrong)
                    self.gates.tell(asked ^ 1, *(self.guards[k].then for k in guards))
            if cases:
                self._asked[number] = asked = self.gates.free()
                self.gates.tell(asked ^ 1, *cases)

    def _wrong(self, bit: int, differs: int) -> Iterator[tuple[int, set[int]]]:
        """Of each thing that is known of a register: whether it takes something else, and the guards under
        which it must not. differs: whether it takes something else than without the fault."""
        each = self.apart[bit]
        yield differs, each.guards
        if each.turns:
            assert self._turned is not None
            yield self.gates.differ(differs, self._inverts(self._turned, then=True)), each.turns

    def _inverts(self, bit: Inverted, then: bool) -> int:
        """Whether the fault inverts a bit, as it is or, of a register, as it will be next."""
        if bit.by is None:
            return TRUE
        return self.values[self.machine.registers[bit.by][0] if then else bit.by] ^ (not bit.when)

    def _case(self) -> Model | None:
        """A case in which something differs, registers being the same wherever they still have to be."""
        gates = self.gates
        asked = gates.free()
        gates.tell(asked ^ 1, *self._asked.values())
        while True:
            alive = [
                literal
                for (bit, k, turned), literal in self._active.items()
                if k in (self.apart[bit].turns if turned else self.apart[bit].guards)
            ]
            model, spent = gates.ask(asked, *alive, conflicts=self._left)
            self._left -= spent
            if model is None:
                return None
            fresh = False
            for bit, each in self.apart.items():
                for turned, right, guards in each.claims():
                    if not guards or model[right]:
                        continue
                    for k in guards:
                        if (bit, k, turned) not in self._active and model[self.guards[k].now]:
                            self._active[bit, k, turned] = active = gates.free()
                            gates.tell(active ^ 1, self.guards[k].now ^ 1, right)
                            fresh = True
            if not fresh:
                return model

    def _may_differ(self, bits: Iterable[int], model: Model) -> set[int]:
        """Registers may differ after such a step; those of them that could not before."""
        fresh = set()
        for bit in bits:
            numbers = self.machine.given_by.get(bit, ())
            if bit not in self.apart:
                fresh.add(bit)
                self.apart[bit] = self._free(bit)
                left = self.apart[bit].guards
                left -= {k for k in left if model[self.guards[k].then]}
            elif bit in self.machine.stepwise:
                [number] = self.machine.given_by[bit]
                for literal, guards in self._wrong(bit, self._differs[number]):
                    if guards and model[literal]:
                        guards -= {k for k in guards if model[self.guards[k].then]}
            for number in numbers:
                self._ask_of(number)
        return fresh

    def _free(self, bit: int) -> _Apart:
        """A register that may differ, but for what is not known yet to be possible."""
        theirs = self.gates.free()
        differs = self.gates.differ(self.values[bit], theirs)
        guards = set(self.machine.guards_of(bit))
        self.gates.know(differs)
        if self._turned is None or bit != self._turned.what:
            return _Apart(theirs, differs ^ 1, guards)
        turned = self.gates.differ(differs, self._inverts(self._turned, then=False)) ^ 1
        self.gates.know(turned)
        # At first both are claimed in each phase, which says that there is none: the first steps into one
        # show which it is, and of a phase that nothing leads into it was true. In the beginning both circuits
        # hold the same, so of a phase that may hold then nothing else is claimed.
        return _Apart(theirs, differs ^ 1, guards | self._phases, turned, self._phases - self._first)


def unseen(machine: Machine, mutant: Mutant) -> bool:
    """Whether no way leads from the fault to where it can be seen, however logic behaves.

    A bit of a sum reaches its own place and those above it; one of what is done bit by bit its own.
    """
    cells = machine.cells
    users: dict[int, list[tuple[str, str, int]]] = {}
    for name, cell in cells.items():
        if not stateful(cell):
            for port, bits in cell["connections"].items():
                for place, bit in enumerate(bits):
                    if isinstance(bit, int) and cell["port_directions"][port] == "input":
                        users.setdefault(bit, []).append((name, port, place))
    behind: dict[int, list[tuple[int, ...] | None]] = {}
    at: dict[Pin, list[tuple[int, ...] | None]] = {}
    for sink in machine.sinks:
        for pin in (sink.what, *sink.when):
            behind.setdefault(machine.bit(pin), []).append(sink.may)
            at.setdefault(pin, []).append(sink.may)

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

    cell = cells[mutant.cell]
    if cell["port_directions"][mutant.port] == "output":
        todo = [cell["connections"][mutant.port][mutant.bit]]
    elif stateful(cell):
        todo = []
        for may in at.get((mutant.cell, mutant.port, mutant.bit), ()):
            if may is None:
                return False
            todo += may
    else:
        todo = list(reached(mutant.cell, mutant.port, mutant.bit))
    found = set(todo)
    while todo:
        bit = todo.pop()
        following = [b for user in users.get(bit, ()) for b in reached(*user)]
        for may in behind.get(bit, ()):
            if may is None:
                return False
            following += may
        todo += (new := set(following) - found)
        found |= new
    return True
