"""Whether every instance counted once: the ledgers of all members, and the journal, held against each other.

An instance counts where its lease says so (leases of a dead member end with what it had written down), and is
undone where the job went back behind it. Of messages, those that both sides have written down are compared
with the rounds of their sender: which rounds each receiver has of each partition, and over how many rows.
Of a newcomer, what its donor had taken until it gave it values ends where others begin to owe the newcomer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from amphw.host.run_folder import RunFolderError
from amphw.replicas.ako.message import Member
from amphw.replicas.elastic.coordinator import JOURNAL
from amphw.replicas.elastic.journal import Journal
from amphw.replicas.elastic.ledger import JOB, ledger_of
from amphw.replicas.elastic.table import LOST, Table

SHOWN = 20
"""Complaints that are kept in words."""


@dataclass
class Audit:
    """instances: that count. undone: trained on, and not counted, as the member or the job went back. lost:
    instances that no member has trained on, or whose gradients did not get from a member that did not fail to
    another one. in_flight: those whose gradients a member that failed, or one that failed before they came,
    had not delivered to everybody. doubled: instances that count twice, or whose gradients somebody has taken
    twice. messages: that were taken. wrong: what is lost or doubled, in words.
    """

    instances: int = 0
    undone: int = 0
    lost: int = 0
    in_flight: int = 0
    doubled: int = 0
    messages: int = 0
    epochs: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def complain(self, text: str) -> None:
        if len(self.wrong) < SHOWN:
            self.wrong.append(text)


@dataclass
class _Told:
    """What one incarnation has written down. rounds: (instances, rows by node) by number; leases: first
    and last place, and the round that they were in, by lease; layouts: by number;
    received: by source and layout; gave: how many of those lines there were when a newcomer was given values;
    ended: the last round of one that ended in good order; to_the_end: which was when the job ended."""

    rounds: dict[int, tuple[int, np.ndarray]] = field(default_factory=dict)
    leases: dict[int, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    layouts: dict[int, dict[str, Any]] = field(default_factory=dict)
    received: dict[tuple[Member, int], list[dict[str, Any]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    gave: dict[Member, dict[tuple[Member, int], int]] = field(default_factory=dict)
    ended: int | None = None
    to_the_end: bool = False

    def instances(self, rounds: Iterable[int], least: int = 0) -> int:
        """In these rounds; an empty one counts as `least`."""
        return sum(max(least, self.rounds[n][0] if n in self.rounds else 0) for n in rounds)

    @property
    def last(self) -> int:
        return max(self.rounds, default=0) if self.ended is None else self.ended


def read_table(folder: Path) -> Table:
    """The members of the run in `folder`. Raises RunFolderError where it had none that come and go."""
    events = Journal(folder / JOURNAL).read()
    if not events:
        raise RunFolderError(
            f"{folder} is not the run of a job with members that come and go (there is no {JOURNAL}); start "
            "one with amphw train MODEL --ranks N --carrier ray"
        )
    table = Table()
    for event in events:
        table.apply(event)
    return table


def audit(folder: Path) -> Audit:
    """Of a run that has ended. Raises RunFolderError."""
    table, found = read_table(folder), Audit()
    told = {me: _read(folder, me) for me in table.seen}
    _check_instances(table, told, found)
    beyond = _beyond(table, told)
    for sender, its in told.items():
        rounds = _Rounds()
        for taker, theirs in told.items() if beyond[sender] else ():
            lines = [
                line for (source, _), some in theirs.received.items() if source == sender for line in some
            ]
            if more := beyond[sender] & set(_covered(lines)):
                rounds.twice |= more
                found.complain(
                    f"{_name(taker)} from {_name(sender)}: {_span(more)}, which others have trained on again"
                )
        for taker, theirs in told.items():
            if sender != taker:
                _check_messages((sender, its), (taker, theirs), rounds, found)
                _check_handovers((sender, its), (taker, theirs), table, rounds, found)
        if table.seen[sender].state == LOST:
            found.in_flight += its.instances(rounds.missing)
        else:
            found.lost += its.instances(rounds.missing, 1)
            for text in rounds.why_missing:
                found.complain(text)
        found.lost += its.instances(rounds.fewer, 1)
        found.doubled += its.instances(rounds.twice, 1)
    return found


@dataclass
class _Rounds:
    """Of a sender: rounds that somebody lacks, of which somebody has fewer rows than were sent, or which
    somebody has more than once."""

    missing: set[int] = field(default_factory=set)
    why_missing: list[str] = field(default_factory=list)
    fewer: set[int] = field(default_factory=set)
    twice: set[int] = field(default_factory=set)


def _read(folder: Path, me: Member) -> _Told:
    told = _Told()
    for line in Journal(ledger_of(folder, me)).read():
        if "lease" in line:
            start, stop = line["instances"]
            told.leases[line["lease"]].append((start, stop, line["round"]))
            told.rounds[line["round"]] = stop - start, np.array(line["rows"], np.int64)
        elif "from" in line:
            told.received[Member(*line["from"]), line["layout"]].append(line)
        elif "gave" in line:
            told.gave[Member(*line["gave"])] = {key: len(lines) for key, lines in told.received.items()}
        elif "layout" in line:
            told.layouts[line["layout"]] = line
        elif "ended" in line:
            told.ended, told.to_the_end = line["ended"], line["why"] == JOB
    return told


def _check_instances(table: Table, told: dict[Member, _Told], found: Audit) -> None:
    times: dict[int, Counter[int]] = defaultdict(Counter)
    counted = {lease.number: taken for lease, taken in table.leases.counted()}
    for lease, _ in table.leases.closed:
        ranges = told[lease.holder].leases.get(lease.number, [])
        places = [place for start, stop, _ in ranges for place in range(start, stop)]
        taken = counted.get(lease.number, 0)
        mine = [place for place in places if place < lease.start + taken]
        found.undone += len(places) - len(mine)
        found.instances += len(set(mine))
        times[lease.epoch].update(mine)
    for number, epoch in sorted(table.leases.epochs.items()):
        seen = times[number]
        found.epochs[str(number)] = len(seen)
        more = sorted(place for place, often in seen.items() if often > 1)
        found.doubled += len(more)
        for place in more:
            found.complain(f"epoch {number}: instance {place} counts {seen[place]} times")
        # While a job trains, or after it was killed, what is leased may still be under way.
        if table.leases.complete(number):
            for place in sorted(set(range(epoch.size)) - set(seen)):
                found.lost += 1
                found.complain(f"epoch {number}: no member has trained on instance {place}")


def _beyond(table: Table, told: dict[Member, _Told]) -> dict[Member, set[int]]:
    """By member the rounds of places that it had written down and that were leased again, as it counted as
    lost before."""
    found: dict[Member, set[int]] = defaultdict(set)
    for lease, taken in table.leases.closed:
        if lease.number not in table.leases.undone:
            its = told[lease.holder]
            found[lease.holder] |= {
                number
                for start, stop, number in its.leases.get(lease.number, ())
                if stop > start >= lease.start + taken
            }
    return found


def _check_messages(
    source: tuple[Member, _Told], receiver: tuple[Member, _Told], rounds: _Rounds, found: Audit
) -> None:
    (sender, its), (taker, theirs) = source, receiver
    pair = f"{_name(taker)} from {_name(sender)}"
    numbers = sorted(its.layouts)
    for number, following in zip(numbers, [*numbers[1:], None], strict=False):
        layout = its.layouts[number]
        lines = theirs.received.get((sender, number), [])
        found.messages += len(lines)
        if list(taker) not in layout["peers"]:
            if lines:
                rounds.twice.update(_covered(lines))
                found.complain(f"{pair}: what it is not owed, {_span(_covered(lines))}")
            continue
        last = its.layouts[following]["first"] - 1 if following is not None else its.last
        for partition in range(layout["partitions"]):
            part = [line for line in lines if line["partition"] == partition]
            _check_rows(its, part, pair, rounds, found)
            missing = set(range(layout["first"], last + 1)) & set(its.rounds) - set(_covered(part))
            if missing and theirs.to_the_end:
                rounds.missing |= missing
                rounds.why_missing.append(f"{pair}: lacks {_span(missing)}")


def _check_handovers(
    source: tuple[Member, _Told], donor: tuple[Member, _Told], table: Table, rounds: _Rounds, found: Audit
) -> None:
    """Of what one member has sent a donor, what newcomers have of it in their values."""
    (sender, its), (giver, theirs) = source, donor
    for joiner, lengths in theirs.gave.items():
        owed = [layout["first"] for layout in its.layouts.values() if list(joiner) in layout["peers"]]
        if not owed or joiner == sender or not table.seen[joiner].figures.get("rounds"):
            continue
        first, pair = min(owed), f"{_name(joiner)} from {_name(sender)}, by {_name(giver)}"
        numbers = sorted(its.layouts)
        for number, following in zip(numbers, [*numbers[1:], None], strict=False):
            layout, lines = its.layouts[number], theirs.received.get((sender, number), [])
            had = _covered(lines[: lengths.get((sender, number), 0)])
            if more := {n for n in had if n >= first}:
                rounds.twice |= more
                found.complain(f"{pair}: in its values and owed, {_span(more)}")
            if (
                list(giver) not in layout["peers"]
                or layout["first"] >= first
                or table.seen[sender].state == LOST
            ):
                continue  # what one that failed had not delivered is in flight
            last = first - 1 if following is None else min(first, its.layouts[following]["first"]) - 1
            for partition in range(layout["partitions"]):
                part = lines[: lengths.get((sender, number), 0)]
                part = [line for line in part if line["partition"] == partition]
                missing = set(range(layout["first"], last + 1)) & set(its.rounds) - set(_covered(part))
                if missing:
                    rounds.missing |= missing
                    rounds.why_missing.append(f"{pair}: not in its values, {_span(missing)}")


def _check_rows(
    its: _Told, lines: Sequence[dict[str, Any]], pair: str, rounds: _Rounds, found: Audit
) -> None:
    """Of one partition in one layout, what one member has taken from another."""
    more = {number for number, often in Counter(_covered(lines)).items() if often > 1}
    if more:
        rounds.twice |= more
        found.complain(f"{pair}: twice, {_span(more)}")
    for line in lines:
        covered = _covered([line])
        sent = [its.rounds[n][1] for n in covered if n in its.rounds]
        rows, had = sum(int(each.sum()) for each in sent), int(np.sum(line["rows"]))
        if had != rows:
            (rounds.twice if had > rows else rounds.fewer).update(covered)
            found.complain(f"{pair}: {had} rows where {rows} were sent, {_span(covered)}")


def _covered(lines: Iterable[dict[str, Any]]) -> list[int]:
    return [n for line in lines for n in range(line["rounds"][0], line["rounds"][1] + 1)]


def _span(rounds: Iterable[int]) -> str:
    numbers = sorted(rounds)
    return f"rounds {numbers[0]} to {numbers[-1]}"


def _name(me: Member) -> str:
    return f"member {me.number}.{me.incarnation}"
