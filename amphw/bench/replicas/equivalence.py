"""Ranks against one process with a window of all of them: parameters after 50 updates.

On the C++ engine, in single precision, sums are taken in another order, so parameters differ by rounding:
by so much of the way that training has gone, in the norm of each tensor. On the reference executor, in double
precision, the largest difference of a number is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from amphw.bench.plan import Say
from amphw.bench.replicas.training import MakeDevice, Values, begun, configured, engine, reference64, trained

UPDATES = 50
RANKS = (2, 4)
STRATEGIES = ("hybrid", "allreduce", "servers")

MODELS: Mapping[str, Sequence[str]] = {
    # Batches of 5, as `train_instances` counts sequences.
    "list-reduction": ["hidden=32", "batch=5", "valid_instances=50"],
    "tree-lstm": [
        "sample=true", "hidden=32", "embedding=32", "vocabulary=500", "dropout=0.1", "valid_instances=4",
    ],
    "language-model": [
        "vocabulary=2000", "embedding=16", "hidden=16", "samples=16", "sentences=1000", "valid_instances=2",
    ],
}  # fmt: skip
"""Small enough for the reference executor; sentences, trees and lists have all sizes."""

_INSTANCE = {"list-reduction": 5}
_RULE = [
    "optimizer=adam",
    "lr=0.002",
    "update.nodes.embed.optimizer=adam",
    "update.nodes.output.optimizer=adam",
]
_KINDS: Mapping[str, MakeDevice] = {"float32": engine, "float64": reference64}


@dataclass(frozen=True)
class Compared:
    """One run of ranks. difference: relative to the way of training in float32, absolute in float64.
    averaged: the same of `train.average`, where the strategy has it. tensor: the one that differs most."""

    model: str
    strategy: str
    ranks: int
    kind: str
    difference: float
    tensor: str
    averaged: float | None


def compare(say: Say) -> list[Compared]:
    """Every strategy, model, number of ranks and kind of number."""
    found: list[Compared] = []
    for model in MODELS:
        for kind in _KINDS:
            for ranks in RANKS:
                found += _of(model, kind, ranks)
            worst = max(c.difference for c in found if c.model == model and c.kind == kind)
            say(f"{model}, {kind}: ranks differ from one process by {worst:.1e} after {UPDATES} updates")
    return found


def _of(name: str, kind: str, ranks: int) -> Iterator[Compared]:
    make = _KINDS[kind]
    rule = [r for r in _RULE if "nodes" not in r or name == "language-model"]
    size = UPDATES * ranks * _INSTANCE.get(name, 1)
    given = [*MODELS[name], *rule, "clip_norm=0.5", f"train_instances={size}"]
    average = ["train.average=0.95"]
    model, cfg = configured(name, [*given, *average], ranks)
    start, one = begun(model, cfg, make), trained(model, cfg, 1, make)
    for strategy in STRATEGIES:
        # With servers no rank has all parameters to average.
        more = average if strategy == "allreduce" else []
        model, cfg = configured(name, [*given, *more, f"replicas.strategy={strategy}"], 1)
        several = trained(model, cfg, ranks, make)
        relative = kind == "float32"
        differences = _differences(several.values, one.values, start, relative)
        tensor = max(differences, key=lambda each: differences[each])
        averages = _differences(several.averaged, one.averaged, start, relative) if more else {}
        worst = max(averages.values()) if averages else None
        yield Compared(name, strategy, ranks, kind, differences[tensor], tensor, worst)


def _differences(found: Values, expected: Values, start: Values, relative: bool) -> dict[str, float]:
    """By tensor that training has moved."""
    out = {}
    for name, value in expected.items():
        way = float(np.linalg.norm(value.astype(np.float64) - start[name]))
        off = found[name].astype(np.float64) - value
        if way > 0:
            out[name] = float(np.linalg.norm(off)) / way if relative else float(np.abs(off).max())
    return out


def record(found: Sequence[Compared]) -> dict[str, object]:
    """`equivalence`: by strategy the largest relative difference in float32; `equivalence_float64`: the
    largest difference of a number in float64."""
    worst = {
        kind: {s: max(c.difference for c in found if (c.strategy, c.kind) == (s, kind)) for s in STRATEGIES}
        for kind in _KINDS
    }
    return {
        "equivalence": worst["float32"],
        "equivalence_float64": worst["float64"],
        "compared": [asdict(c) for c in found],
    }
