"""Faults in all of a list of circuits: how many the benches notice, and which they do not.

What is found is written down fault by fault in the cache, so that a campaign that was broken off goes on
where it was, and one whose circuits and benches are what they were has nothing to do.
"""

from __future__ import annotations

import inspect
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from amphw.rtl.mutation import equivalence, gates, machine
from amphw.rtl.mutation.equivalence import Prover
from amphw.rtl.mutation.netlist import Mutant, Netlist, sample
from amphw.rtl.mutation.play import Outcome
from amphw.rtl.toolchain.build_cache import cache_root, key

BAR = 0.95
"""The share of faults to be noticed, of those that are not proved to be equivalent."""

BATCH = 300
"""Mutants in one library: compiling takes a quarter of a minute, and longer the more there are."""

_SHOWN_S = 20.0
_PROVER = key(*(inspect.getsource(module) for module in (equivalence, gates, machine)))


class Judging(Protocol):
    """A circuit with mutants in it."""

    def outcome(self, number: int) -> Outcome: ...


class Opened(Protocol):
    """A circuit and what its benches do."""

    @property
    def netlist(self) -> Netlist: ...
    @property
    def digest(self) -> str: ...
    def with_mutants(self, mutants: Sequence[Mutant]) -> Judging: ...


class Campaigned(Protocol):
    """What faults are looked for in; see `play.Subject` and `replay.Recorded`."""

    @property
    def name(self) -> str: ...
    @property
    def within(self) -> str: ...
    @property
    def without(self) -> Sequence[str]: ...
    @property
    def share(self) -> int: ...
    def open(self) -> Opened: ...


Found = dict[str, Any]
"""Of one mutant, as it is written down: subject, mutant, outcome, equivalent."""


def campaign(
    subjects: Sequence[Campaigned],
    mutants: int,
    seed: int,
    seconds: float,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """The record: see `summary`.

    mutants: in all, shared out among the subjects. seconds: after which no further mutant is tried; those
    that are known then are reported, and the next campaign of these arguments goes on. say: hears of
    progress, a line each.
    Raises ToolchainError where a tool is missing or fails.
    """
    start = time.monotonic()
    found: list[Found] = []
    wanted = 0
    for subject, count in zip(subjects, shares(subjects, mutants), strict=True):
        opened = subject.open()
        chosen = sample(opened.netlist, count, seed, subject.within, subject.without)
        path = cache_root() / "mutation" / f"{key(opened.netlist.text, opened.digest)}.jsonl"
        known = _known(path)
        shown = time.monotonic()
        wanted += len(chosen)
        judged = _judged(subject, opened, chosen, known, path, lambda: time.monotonic() - start > seconds)
        for number, each in enumerate(judged, 1):
            found.append(each)
            if time.monotonic() - shown > _SHOWN_S or number == len(chosen):
                shown = time.monotonic()
                say(f"{subject.name}: {_counted(found[-number:])}, of {len(chosen)}")
    return summary(found) | {
        "seed": seed,
        "asked": mutants,
        "complete": len(found) == wanted,
        "seconds": time.monotonic() - start,
    }


def shares(subjects: Sequence[Campaigned], mutants: int) -> list[int]:
    """How many of the mutants each subject gets: what is left over goes to those that miss most."""
    whole = sum(subject.share for subject in subjects)
    exact = [divmod(mutants * subject.share, whole) for subject in subjects]
    left = mutants - sum(count for count, _ in exact)
    first = sorted(range(len(exact)), key=lambda k: -exact[k][1])[:left]
    return [count + (k in first) for k, (count, _) in enumerate(exact)]


def _known(path: Path) -> dict[str, Found]:
    if not path.is_file():
        return {}
    found = {}
    for line in path.read_text().splitlines():
        try:
            each = json.loads(line)
        except ValueError:  # it was broken off while this was written
            continue
        found[each["name"]] = each
    return found


def _judged(
    subject: Campaigned,
    opened: Opened,
    chosen: Sequence[Mutant],
    known: Mapping[str, Found],
    path: Path,
    late: Callable[[], bool],
) -> Iterator[Found]:
    """What is found of each, those that are known first, until it is too late for the others."""
    prover = cache(lambda: Prover(opened.netlist))  # of a circuit without survivors there is none
    for mutant in chosen:
        if mutant.name in known:
            yield _proved_again(known[mutant.name], prover, mutant, path)
    left = [mutant for mutant in chosen if mutant.name not in known]
    path.parent.mkdir(parents=True, exist_ok=True)
    for first in range(0, len(left), BATCH):
        if late():
            return
        batch = left[first : first + BATCH]
        judging = opened.with_mutants(batch)
        for number, mutant in enumerate(batch, 1):
            outcome = judging.outcome(number)
            same = not outcome.how and prover().equivalent(mutant)
            each = {
                "name": mutant.name,
                "prover": _PROVER,
                "subject": subject.name,
                "mutant": asdict(mutant),
                "outcome": asdict(outcome),
                "equivalent": same,
            }
            _keep(each, path)
            yield each
            if late():
                return


def _proved_again(each: Found, prover: Callable[[], Prover], mutant: Mutant, path: Path) -> Found:
    """What was found of a mutant, but for a survivor of which other proofs may know better by now."""
    if _fate(each) != "survived" or each.get("prover") == _PROVER:
        return each
    each = {**each, "prover": _PROVER, "equivalent": prover().equivalent(mutant)}
    _keep(each, path)
    return each


def _keep(each: Found, path: Path) -> None:
    with path.open("a") as file:
        file.write(json.dumps(each) + "\n")


def _fate(each: Found) -> str:
    return "killed" if each["outcome"]["how"] else "equivalent" if each["equivalent"] else "survived"


def _counted(found: Sequence[Found]) -> str:
    counts = Counter(_fate(each) for each in found)
    return ", ".join(f"{counts[name]} {name}" for name in ("killed", "survived", "equivalent"))


def summary(found: Sequence[Found]) -> dict[str, Any]:
    """Counts of what was found, and the survivors.

    sampled = killed + survived + equivalent; score: killed of those that are not equivalent, None of none.
    by: kills by what was noticed. subjects, modules: the same counts by circuit and by file of the gateware.
    survivors: each with its place. slower: that it only takes other cycles.
    """
    counts = Counter(_fate(each) for each in found)
    judged = counts["killed"] + counts["survived"]
    score = counts["killed"] / judged if judged else None
    return {
        "sampled": len(found),
        **{name: counts[name] for name in ("killed", "survived", "equivalent")},
        "score": score,
        "bar": BAR,
        "meets_bar": score is not None and score >= BAR,
        "by": dict(Counter(each["outcome"]["how"] for each in found if each["outcome"]["how"])),
        "subjects": _grouped(found, lambda each: str(each["subject"])),
        "modules": _grouped(found, lambda each: str(each["mutant"]["file"])),
        "survivors": [
            {
                "subject": each["subject"],
                "module": each["mutant"]["module"],
                "fault": each["name"],
                "cell": each["mutant"]["kind"],
                "signal": each["mutant"]["wire"],
                "source": list(each["mutant"]["sources"])[:3],
                "slower": each["outcome"]["slower"],
            }
            for each in found
            if _fate(each) == "survived"
        ],
    }


def _grouped(found: Sequence[Found], by: Callable[[Found], str]) -> dict[str, dict[str, int]]:
    groups: dict[str, Counter[str]] = {}
    for each in found:
        groups.setdefault(by(each), Counter())[_fate(each)] += 1
    return {
        name: {fate: groups[name][fate] for fate in ("killed", "survived", "equivalent")}
        for name in sorted(groups)
    }
