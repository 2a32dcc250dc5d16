"""The best split into workers and servers, and Ako beside it, in simulated time: shapes of the Ako paper.

    python benchmarks/ako_shapes.py [--json FILE]

Watcharapichat et al. (SoCC 2016) show that which split of a cluster into workers and parameter servers is the
fastest depends on how many machines there are (figure 2), on their hardware and on what is learnt (figure 3),
and that Ako, which has nothing to split, is near the best split everywhere (figures 9 to 11). Here are 16 and
64 machines with interfaces of 1 Gb/s, slow and fast processors, and a small and a large model; asynchronous
servers (`servers-async`) with the splits that `amphw estimate --best-split` tries, PS[w+w] apart, and `ako`
with the number of partitions that the paper's cost model gives. What is compared is throughput: how well a
model learns from an instance is another question. Rates and sizes are ours; shapes are the paper's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from record import save

from amphw.host.config import RunConfig, resolve
from amphw.host.run_model import RunModel
from amphw.host.session import graph_of
from amphw.ir.program import ParamSpec
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.models import get_model
from amphw.replicas.ako.cost import partitions_for
from amphw.replicas.at_own_pace import play_at_own_pace
from amphw.replicas.rehearsal import Pace, Simulated, Work
from amphw.replicas.run import STRATEGIES
from amphw.replicas.simulated import Machines
from amphw.replicas.splits import Split, best_split

CLUSTERS = (16, 64)
RATES = {"slow": 1.0, "fast": 4.0}
"""Rounds a second of one machine, of an instance each."""
SIZES = {"small": 4e6, "large": 32e6}
"""Bytes of all parameters."""
NIC, LATENCY = 1e9 / 8, 1e-4
"""Bytes a second, each way, and seconds of a message."""
NEAR = 0.9
"""Ako is near the best split if it has so much of its throughput."""
NUMBERS = 16_384
"""Parameters as they are simulated; each stands for as many as make up the size."""
ROUNDS = {16: 12, 64: 4}
"""Of each rank that count, by the size of the cluster."""


@dataclass(frozen=True)
class Case:
    """machines: how many. hardware, model: keys of `RATES` and `SIZES`."""

    machines: int
    hardware: str
    model: str

    @property
    def name(self) -> str:
        return f"{self.machines} {self.hardware} machines, {self.model} model"

    @property
    def partitions(self) -> int:
        return partitions_for(RATES[self.hardware], SIZES[self.model], self.machines, NIC)


@dataclass(frozen=True)
class Outcome:
    """splits: that were tried, by servers; of these, with 0 servers every rank trains and serves. ako: in the
    simulation, with so many partitions."""

    case: Case
    splits: Sequence[Split]
    ako: Simulated

    @property
    def apart(self) -> Split:
        """PS*: the best split into ranks that train and ranks that serve."""
        return max((each for each in self.splits if each.servers), key=lambda each: each.throughput)

    @property
    def together(self) -> Split:
        """PS[w+w]."""
        return next(each for each in self.splits if not each.servers)

    @property
    def best(self) -> Split:
        return max(self.splits, key=lambda each: each.throughput)

    @property
    def of_best(self) -> float:
        """Ako's throughput, of that of the best split."""
        return self.ako.instances_per_s / self.best.throughput


def work_of(case: Case, model: RunModel, cfg: RunConfig[Any]) -> Work:
    rule = UpdateRule(optimizer="sgd")
    values = {"W": np.zeros(NUMBERS, np.float32)}
    parameters = {"all": NodeParameters.of((ParamSpec("W", (NUMBERS,), "zeros"),), rule, values)}
    model.prepare(cfg.model, cfg.train.seed)
    instances = model.training(cfg.model, cfg.train.seed, 1, cfg.train.train_instances)
    pace, scale = Pace(1.0 / RATES[case.hardware]), SIZES[case.model] / (4 * NUMBERS)
    return Work(graph_of(model, cfg), {"all": rule}, parameters, instances, 1, pace, scale)


def simulated(case: Case, strategy: str, servers: int, rounds: int) -> Simulated:
    model = get_model("ako-mnist")
    settings = ["sample=true", "train_instances=2000", "mode=sync", f"replicas.strategy={strategy}"]
    own = f"replicas.partitions={case.partitions}" if strategy == "ako" else f"replicas.servers={servers}"
    cfg = resolve(model.config, model.defaults, None, [*settings, own])
    work, machines = work_of(case, model, cfg), Machines(range(case.machines), NIC, LATENCY)
    return play_at_own_pace(case.machines, lambda: STRATEGIES[strategy](cfg), work, machines, rounds=rounds)


def outcome(case: Case, play: Callable[[Case, str, int, int], Simulated] = simulated) -> Outcome:
    rounds = ROUNDS.get(case.machines, 12)
    splits = best_split(case.machines, lambda servers: play(case, "servers-async", servers, rounds))
    return Outcome(case, splits.tried, play(case, "ako", 0, rounds))


def checks(outcomes: Sequence[Outcome]) -> dict[str, bool]:
    """What the paper's figures show, of these."""
    share = {o.case: o.apart.servers / o.case.machines for o in outcomes}

    def moves(vary: str) -> bool:
        """Whether somewhere the best share of servers is another one where only this differs."""
        alike: dict[tuple[Any, ...], set[float]] = {}
        for case, each in share.items():
            rest = tuple(v for name, v in vars(case).items() if name != vary)
            alike.setdefault(rest, set()).add(each)
        return any(len(found) > 1 for found in alike.values())

    def grows(vary: str, larger: tuple[Any, Any]) -> bool:
        """Whether the second of these never has a smaller share of servers than the first."""
        return all(
            share[other] >= each
            for case, each in share.items()
            for other in share
            if vars(other) == {**vars(case), vary: larger[1]} and getattr(case, vary) == larger[0]
        )

    return {
        "the best split moves with the size of the cluster (figure 2)": moves("machines"),
        "the best split moves with the hardware (figure 3)": moves("hardware"),
        "the best split moves with the model (figure 3)": moves("model"),
        "faster machines want no smaller a share of servers": grows("hardware", ("slow", "fast")),
        "a larger model wants no smaller a share of servers": grows("model", ("small", "large")),
        f"Ako has {NEAR} of the best split's throughput or more everywhere (figures 9 to 11)": all(
            o.of_best >= NEAR for o in outcomes
        ),
    }


def recorded(of: Outcome) -> dict[str, Any]:
    own = of.ako.own
    return {
        **vars(of.case),
        "splits": [vars(each) for each in of.splits],
        "best_apart": vars(of.apart),
        "together": of.together.throughput,
        "ako": {
            "partitions": own["partitions"],
            "throughput": of.ako.instances_per_s,
            "of_best_split": of.of_best,
            "bytes_sent_a_round": sum(each["sent"] for each in of.ako.bytes.values()),
            "staleness_max": own["staleness_max"],
            "bound": own["bound"],
        },
    }


def said(of: Outcome) -> str:
    best, ideal = of.apart, of.case.machines * RATES[of.case.hardware]
    return (
        f"{of.case.name}: PS* [{best.workers}+{best.servers}] {best.throughput:.1f}/s, "
        f"PS[w+w] {of.together.throughput:.1f}/s, Ako with {of.ako.own['partitions']} partitions "
        f"{of.ako.instances_per_s:.1f}/s, {of.of_best:.2f} of the best split; {ideal:.0f}/s without exchanges"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where the record is written")
    parser.add_argument("--machines", type=int, nargs="+", default=CLUSTERS, help="sizes of clusters")
    args = parser.parse_args()
    outcomes = []
    for case in (Case(n, hardware, model) for n in args.machines for hardware in RATES for model in SIZES):
        outcomes.append(outcome(case))
        print(said(outcomes[-1]), flush=True)
    held = checks(outcomes)
    for what, holds in held.items():
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: {what}")
    if args.json:
        save({"checks": held, "cases": [recorded(each) for each in outcomes]}, args.json)
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
