"""The record of `amphw bench exchange`: what partial gradient exchange costs, and how its cost model does.

Two ranks of one worker each train the network of Ako (SoCC 2016). These keys are what other programs rely on;
there are more. One that could not be measured is null, and `because` says why.

    compute_share: throughput with exchange over that without, in rounds that take turns
    p_predicted: partitions that the cost model (`amphw.replicas.ako.cost`) asks for, on this link
    p_best: partitions with which accuracy is highest after a fixed time, of those that were tried
    bandwidth_error: bytes a second that a rank has sent, relative to what the cost model says, less 1
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np

from amphw.bench.errors import BenchError
from amphw.bench.figures import Figure, paired
from amphw.bench.load import Usage, total
from amphw.bench.plan import Say
from amphw.bench.processor import processor
from amphw.bench.replicas.pair import carried, carrier, generated, measured, trained
from amphw.bench.validity import load_reasons, round_reasons
from amphw.host.config import resolve
from amphw.host.run_folder import environment
from amphw.host.session import graph_of
from amphw.models import get_model
from amphw.replicas.ako.cost import gamma, partitions_for, sent_per_s
from amphw.replicas.ako.settings import usable

MODEL, RANKS, EPOCHS = "ako-mnist", 2, 5
RATE = 3000
"""Images a second of two slow cores, about: `seconds` of them are an epoch."""
LEAST = 100
"""Images of an epoch: a batch for each rank at least."""
PARTITIONS = (1, 2, 4)
"""That are tried where nobody says."""
SWEEPS = 3
"""Runs with each number of partitions, at most."""
FIXED = 4
"""After so many epochs of `seconds` accuracies are compared; each is then cut into as many shorter ones."""
CARRIED_S = 1.0
BY_CHANCE = 0.1
"""Accuracy before training, of ten digits."""


@dataclass
class Sides:
    """By round of measuring, of both ranks together, images a second without exchange and beside it. Of one
    rank, a second: rounds of the exchange, those that it would make if nothing held it (gamma), and bytes.
    epochs: seconds of one. partitions: with which it was."""

    without: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)
    gamma: list[float] = field(default_factory=list)
    epochs: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    partitions: int = RANKS

    def add(self, without: Mapping[str, Any], beside: Mapping[str, Any]) -> None:
        self.without.append(statistics.median(without["rates"]))
        self.beside.append(statistics.median(beside["rates"]))
        own, seconds = beside["own"], beside["epochs"][-1]["seconds"]
        made = statistics.mean(own["clocks"])
        self.rounds.append(made / seconds)
        self.gamma.append(gamma(made, seconds, own["blocked"]))
        self.epochs.append(seconds / len(beside["epochs"]))
        self.sent.append(own["sent"] / seconds)
        self.partitions = own["partitions"]


def measure_exchange(
    seconds: float, rounds: int, partitions: Sequence[int], link: str, settings: Sequence[str], say: Say
) -> dict[str, Any]:
    """Everything. seconds: of an epoch, about. partitions: that are tried; none: `PARTITIONS`. link: what a
    rank can send, such as 1Gb/s; empty: what the carrier carries is measured. settings: beside ours."""
    usages: list[Usage] = []
    common = [*generated(MODEL), *settings]
    sides = _compare(seconds, rounds, common, usages, say)
    size = gradient_bytes(common)
    bandwidth = usable(link) if link else carried(size, CARRIED_S)
    predicted = partitions_for(statistics.median(sides.gamma), size, RANKS, bandwidth)
    say(f"{bandwidth / 1e6:,.0f} MB/s to another rank: {predicted} partitions are predicted")
    tried = _sweep(seconds, min(rounds, SWEEPS), partitions or PARTITIONS, sides, common, usages, say)
    best, why = best_of(tried)
    share = paired(Figure.of(sides.beside), Figure.of(sides.without))
    assert share is not None
    reasons = load_reasons(total(usages)) + round_reasons(rounds)
    return {
        "workload": "exchange",
        "model": MODEL,
        "compute_share": share.median,
        "p_predicted": predicted,
        "p_best": best,
        "bandwidth_error": bandwidth_error(sides, size),
        "because": {"p_best": why} if best is None else {},
        "share": share.to_json(),
        "without": list(sides.without),
        "beside": list(sides.beside),
        "rounds_per_s": list(sides.rounds),
        "gamma": list(sides.gamma),
        "sent_per_s": list(sides.sent),
        "gradient_bytes": size,
        "bandwidth": bandwidth,
        "link": link or "measured",
        "sweep": {str(p): values for p, values in tried.items()},
        "carrier": carrier(),
        "settings": common,
        "rounds": rounds,
        "foreign_load": total(usages).foreign,
        "valid": not reasons,
        "invalid_because": reasons,
        "date": date.today().isoformat(),
        "processor": processor(),
        "environment": environment(),
    }


def _settings(strategy: str, common: Sequence[str], seconds: float, epochs: int) -> list[str]:
    size = [
        f"train_instances={max(RANKS, round(RATE * seconds))}",
        f"epochs={epochs}",
        "valid_instances=1000",
    ]
    return ["mode=async", "workers=1", "target=none", f"replicas.strategy={strategy}", *size, *common]


def _compare(seconds: float, rounds: int, common: Sequence[str], usages: list[Usage], say: Say) -> Sides:
    """With exchange, and without: then ranks meet at the end of an epoch alone, as they do with it, too."""
    sides = Sides()
    for number in range(rounds):
        got = {}
        with measured(usages):
            for strategy in ("average", "ako") if number % 2 == 0 else ("ako", "average"):
                got[strategy] = trained(MODEL, _settings(strategy, common, seconds, EPOCHS), RANKS)
        sides.add(got["average"], got["ako"])
        share = sides.beside[-1] / sides.without[-1]
        told = f"{sides.without[-1]:,.0f}/s without exchange, {sides.beside[-1]:,.0f}/s with it"
        say(f"round {number + 1} of {rounds}: {told}, {share:.3f} of it")
    return sides


def _sweep(
    seconds: float,
    rounds: int,
    partitions: Sequence[int],
    sides: Sides,
    common: Sequence[str],
    usages: list[Usage],
    say: Say,
) -> dict[int, list[float]]:
    """Accuracies after `FIXED * seconds` of training, by number of partitions."""
    found: dict[int, list[float]] = {p: [] for p in partitions}
    short, until = seconds / FIXED, FIXED * seconds
    # Enough epochs for a rank that is half as fast again as the ones before.
    epochs = math.ceil(1.5 * until * statistics.median(sides.beside) / (RATE * short))
    for number in range(rounds):
        for p in found:
            wanted = [*_settings("ako", common, short, epochs), f"replicas.partitions={p}"]
            with measured(usages):
                got = trained(MODEL, wanted, RANKS)
            curve = [(epoch["seconds"], epoch["valid"]) for epoch in got["epochs"]]
            found[p].append(accuracy_at(curve, until))
            say(f"sweep {number + 1} of {rounds}: p = {p}, accuracy {found[p][-1]:.4f} after {until:g} s")
    return found


def accuracy_at(curve: Sequence[tuple[float, float]], until: float) -> float:
    """After so many seconds of training, on a straight line between the ends of two epochs; before the first
    one from chance. curve: seconds and accuracy at the ends of epochs. Raises BenchError where training was
    over before."""
    if curve[-1][0] < until:
        raise BenchError(f"training was over after {curve[-1][0]:.1f} s, and {until:g} are compared")
    seconds, accuracies = zip((0.0, BY_CHANCE), *curve, strict=True)
    return float(np.interp(until, seconds, accuracies))


def best_of(tried: Mapping[int, Sequence[float]]) -> tuple[int | None, str]:
    """The number of partitions with the highest median, and why there is none: the next one's is no further
    away than runs with one number of partitions are from each other."""
    if len(tried) < 2:
        return None, "one number of partitions was tried, and there is nothing to compare it with"
    if min(map(len, tried.values())) < 2:
        return None, "there was one run with each number of partitions, which says nothing of chance"
    medians = sorted(((statistics.median(values), p) for p, values in tried.items()), reverse=True)
    spread = max(max(values) - min(values) for values in tried.values())
    (first, p), (second, _) = medians[:2]
    if first - second > spread:
        return p, ""
    return None, (
        f"the highest accuracy is {first - second:.4f} above the next, and runs with the same number of "
        f"partitions differ by {spread:.4f}"
    )


def bandwidth_error(sides: Sides, size: int) -> float:
    """Of what ranks have sent, as `sent_per_s` has it."""
    made = zip(sides.rounds, sides.epochs, strict=True)
    model = [sent_per_s(rounds, size, RANKS, sides.partitions, epoch) for rounds, epoch in made]
    return statistics.median(sent / said - 1 for sent, said in zip(sides.sent, model, strict=True))


def gradient_bytes(settings: Sequence[str]) -> int:
    """m: of all parameters, in float32."""
    model = get_model(MODEL)
    graph = graph_of(model, resolve(model.config, model.defaults, None, list(settings)))
    nodes = (graph.nodes[name] for name in graph.parameterised)
    return 4 * sum(math.prod(spec.shape) for node in nodes for spec in node.params)
