"""What is said of several ranks that train together in simulated time, to people and to programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from amphw.cli.output import emit_json, results, table
from amphw.page.numbers import number, percent, seconds, size

if TYPE_CHECKING:
    from amphw.estimate.outcome import Origin
    from amphw.replicas.rehearsal import Simulated
    from amphw.replicas.splits import Split


@dataclass(frozen=True)
class Answer:
    """alone: instances a second of one rank. window: instances of a rank between two updates, or averages.
    measured: instances a second of ranks that trained, to compare with. splits: that were tried."""

    model: str
    counted: str
    ranks: int
    machines: int
    strategy: str
    window: int
    alone: float
    found: Simulated
    origin: dict[str, Origin]
    measured: float | None = None
    splits: list[Split] = field(default_factory=list)

    @property
    def efficiency(self) -> float:
        """Of what ranks would do that never met, the share that they do."""
        return self.found.instances_per_s / (self.ranks * self.alone)

    @property
    def error(self) -> float | None:
        """By how much it differs from what was measured, of that."""
        return None if self.measured is None else self.found.instances_per_s / self.measured - 1.0


def say(of: Answer, as_json: bool) -> None:
    """The answer, as tables or for other programs."""
    if as_json:
        emit_json(ranks_json(of))
        return
    out, found = results(), of.found
    out.print(
        f"{of.model}: {of.ranks} ranks on {of.machines} machine{'s' * (of.machines > 1)}, "
        f"strategy {of.strategy}, {of.window} instances of a rank between two exchanges"
    )
    out.print(
        f"\nThroughput: {number(found.instances_per_s)} instances/s, {percent(of.efficiency)} of {of.ranks} "
        f"times the {number(of.alone)} of one rank"
    )
    if of.measured is not None and of.error is not None:
        out.print(
            f"Trained: {number(of.measured)} instances/s; the estimate is {percent(abs(of.error))} "
            f"{'above' if of.error > 0 else 'below'} that"
        )
    out.print(f"\nOf one step, which takes {seconds(found.step)}, on average over ranks:")
    rows = table("", "seconds", "share", right=("seconds", "share"))
    for what, spent in found.seconds.items():
        rows.add_row(what, seconds(spent), percent(spent / found.step))
    out.print(rows)
    out.print(_bytes(found))
    if found.own:
        _say_own(out, found)
    if of.splits:
        _say_splits(out, of.splits)
    out.print("\nHow numbers are known:")
    for name, each in of.origin.items():
        out.print(f"{name}: {each.origin}: {each.how}")


def _say_own(out: Any, found: Simulated) -> None:
    """Of ranks at their own pace, whose steps are rounds."""
    own, clocks = found.own, sorted(found.own["clocks"])
    out.print(f"\nA step is a round of a rank; {clocks[0]} of each were played.")
    if "bound" in own:
        out.print(
            f"At most {own['staleness_max']} ahead of the slowest other one, where {own['bound'] + 1} are "
            f"allowed; the bound held a rank for {seconds(own['blocked'])} of them all"
        )


def _say_splits(out: Any, splits: Sequence[Split]) -> None:
    numbers = ("train", "serve", "instances/s", "of the best")
    rows = table(*numbers, right=numbers)
    best = max(each.throughput for each in splits)
    for each in splits:
        of_best = percent(each.throughput / best)
        serve = str(each.servers) if each.servers else f"all {each.workers}"
        rows.add_row(str(each.workers), serve, number(each.throughput), of_best)
    out.print("\nSplits into ranks that train and ranks that serve; what is above is of the best:")
    out.print(rows)


def _bytes(found: Simulated) -> Any:
    numbers: Sequence[str] = ("sent", "received", "rows touched")
    rows = table("parameter", *numbers, right=tuple(numbers))
    for name, each in sorted(found.bytes.items(), key=lambda pair: -pair[1]["sent"]):
        touched = percent(found.alpha[name]) if name in found.alpha else ""
        rows.add_row(name, size(each["sent"]), size(each["received"]), touched)
    return rows


def ranks_json(of: Answer) -> dict[str, Any]:
    """Version 1. throughput, alone: instances a second, of all ranks and of one alone. step_s, seconds,
    bytes: of one rank and one step, on average. efficiency: throughput over ranks times alone. measured: the
    throughput of `--beside`; error: throughput over that, less 1. own: of ranks at their own pace, as
    `amphw train --ranks N --json` has it. splits: that `--best-split` tried, by servers."""
    return {
        "version": 1,
        "model": of.model,
        "ranks": of.ranks,
        "machines": of.machines,
        "strategy": of.strategy,
        "window": of.window,
        "throughput": of.found.instances_per_s,
        "counted": of.counted,
        "alone": of.alone,
        "efficiency": of.efficiency,
        "step_s": of.found.step,
        "seconds": dict(of.found.seconds),
        "bytes": {name: dict(each) for name, each in of.found.bytes.items()},
        "alpha": dict(of.found.alpha),
        **({"own": dict(of.found.own)} if of.found.own else {}),
        **({"splits": [asdict(each) for each in of.splits]} if of.splits else {}),
        **({} if of.measured is None else {"measured": of.measured, "error": of.error}),
        "origin": {name: asdict(each) for name, each in of.origin.items()},
    }
