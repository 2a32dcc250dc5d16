"""What a keeper owes: rows counted, updates, versions, answers; from the rules that the model trains with."""

from __future__ import annotations

from dataclasses import dataclass, field

from amphw.ir.update import UpdateRule
from amphw.rtl.fixed.parameters import exponent_of, fixed_rule, lfsr_seed
from amphw.rtl.gateware.controller.keeper import Owner, Segment
from amphw.rtl.gateware.controller.ports import FrameKind
from amphw.rtl.isa.commands import LaneOp
from amphw.rtl.isa.wire import Kind, Register
from amphw.rtl.numbers.formats import Formats

Fields = dict[str, int]

UNITS = 6


def owners(momentum: bool, clips: bool = False) -> dict[int, Owner]:
    """Some of UNITS units own parameters; their rules differ. clips: two of the rules clip."""
    optimizer = "momentum" if momentum else "sgd"
    given = [
        UpdateRule(interval=20, lr=0.05, optimizer=optimizer, reduce="mean", clip=0.3 * clips),
        UpdateRule(interval=1, lr=0.01, optimizer=optimizer, reduce="sum"),
        UpdateRule(interval=50, lr=0.1, optimizer=optimizer, reduce="mean", warmup=700, clip=8.0 * clips),
    ]
    exponent = exponent_of(given)
    rules = [fixed_rule("node", rule, exponent, Formats()) for rule in given]
    return {
        0: Owner(rules[0], (Segment(0, 5, 2, 7, 0), Segment(10, 1, 2, 7, 1)), None),
        2: Owner(rules[1], (Segment(12, 9, 1, 4, 0),), 3),
        3: Owner(
            rules[2], (Segment(21, 2, 3, 12, 0), Segment(27, 1, 1, 1, 1), Segment(28, 4, 1, 3, 2)), None
        ),
        5: Owner(rules[0], (Segment(32, 8, 1, 4, 0),), 1),
    }


@dataclass
class KeeperModel:
    """What is due. commands: to the lane engine; ran: to the controller; answers: to the host; updated: units
    whose updates are to be told. updates: of all units, so far.
    """

    owners: dict[int, Owner]
    rows: list[int] = field(default_factory=lambda: [0] * UNITS)
    versions: list[int] = field(default_factory=lambda: [0] * UNITS)
    commands: list[Fields] = field(default_factory=list)
    ran: list[int] = field(default_factory=list)
    answers: list[Fields] = field(default_factory=list)
    updated: list[int] = field(default_factory=list)
    updates: int = 0

    def finished(self, kind: int, unit: int, rows: int, run: int) -> None:
        """A unit has run. run: the bits of what the controller must be told."""
        self.ran.append(run)
        owner = self.owners.get(unit)
        if owner is None or kind != FrameKind.BACKWARD.value:
            return
        self.rows[unit] += rows if owner.rows is None else owner.rows
        if self.rows[unit] >= owner.rule.interval:
            self._update(unit, owner)

    def _update(self, unit: int, owner: Owner) -> None:
        version = self.versions[unit]
        for s in owner.segments:
            if owner.rule.limit:
                self.commands.append(
                    {
                        "op": LaneOp.CLIP, "base": s.base, "rows": s.rows, "blocks": s.blocks,
                        "columns": s.columns, "scale": owner.rule.of_a_row(version), "data": owner.rule.limit,
                    }
                )  # fmt: skip
            self.commands.append(
                {
                    "op": LaneOp.UPDATE, "base": s.base, "rows": s.rows, "blocks": s.blocks,
                    "columns": s.columns, "scale": owner.rule.coefficient(version, self.rows[unit]),
                    "rate": owner.rule.rate(version), "seed": lfsr_seed(version, s.number),
                }
            )  # fmt: skip
        self.rows[unit], self.versions[unit] = 0, version + 1
        self.updated.append(unit)
        self.updates += 1

    def request(self, h: Fields, peeked: int, counters: list[int]) -> None:
        """peeked: what the lane engine will answer to a PEEK, signed."""
        unit, place = h["unit"], h["place"]
        if h["kind"] == Kind.UPDATE:
            if unit in self.owners and self.rows[unit]:
                self._update(unit, self.owners[unit])
            self.answers.append({"kind": Kind.UPDATED, "unit": unit, "state": self.versions[unit]})
            return
        kept = {Register.VERSION: self.versions, Register.ROWS: self.rows}.get(place)  # type: ignore[call-overload]
        if h["kind"] == Kind.POKE and kept is not None:
            kept[unit] = h["state"]
            return
        value = peeked
        if kept is not None:
            value = kept[unit]
        elif place == Register.COUNTER:
            value = counters[h["payload"]]
        else:
            data = h["state"] | (h["copy"] & 0xF) << 32
            op = LaneOp.POKE if h["kind"] == Kind.POKE else LaneOp.PEEK
            self.commands.append(
                {"op": op, "bank": place, "base": h["payload"], "lane": h["firing"], "data": data}
            )
        if h["kind"] == Kind.PEEK:
            found = {"state": value & 0xFFFFFFFF, "copy": value >> 32 & 0xFFFF}
            self.answers.append({**h, "kind": Kind.VALUE, "words": 0, **found})
