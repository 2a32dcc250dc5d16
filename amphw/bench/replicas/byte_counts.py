"""Bytes that ranks move, beside the formulas of Parallax (arXiv 1808.02621, Table 3).

The table counts 2 b for a server's dense parameter both ways together and 2 (N - 1) b / N for a ring each
way; here all are each way, as they are sent and received: of one rank and one step, on average over all, with
b bytes of a parameter, N ranks, and alpha, the share of a table's rows that a rank touches in a step. Rows of
a table go round the servers, so how many lie on the rank's own is chance: the formula is an expectation then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from amphw.bench.plan import Say
from amphw.bench.replicas.training import begun, configured, engine, trained

RANKS = (2, 4)
RULES = ("optimizer=sgd", "optimizer=adagrad", "optimizer=lazy_adam")
SETTINGS = [
    "vocabulary=5000", "embedding=16", "hidden=16", "samples=32", "sentences=1000", "valid_instances=2",
]  # fmt: skip
STEPS = 24
EXPECTATION = 0.02
"""By so much counts of rows that are on another rank may be off the formula."""


@dataclass(frozen=True)
class Counted:
    """One parameter. formula: bytes each way. exact: whether the formula is one, not an expectation."""

    optimizer: str
    strategy: str
    ranks: int
    servers: int
    parameter: str
    sent: float
    received: float
    formula: float
    exact: bool

    @property
    def holds(self) -> bool:
        off = 1e-9 if self.exact else EXPECTATION
        return all(math.isclose(n, self.formula, rel_tol=off) for n in (self.sent, self.received))


def formula(strategy: str, b: float, alpha: float | None, ranks: int, servers: int) -> float:
    """Of a rank that trains. alpha: None for what is dense. servers: of the ranks, that do nothing else."""
    workers = ranks - servers
    if alpha is None and strategy != "servers":
        return 2 * b * (ranks - 1) / ranks  # the ring goes through all
    if strategy == "allreduce":
        return (workers - 1) * b * (alpha or 0.0)
    moved = b if alpha is None else alpha * b
    return moved if servers else 2 * moved * (workers - 1) / workers


def count(say: Say) -> list[Counted]:
    """The language model under every strategy and under rules that leave rows alone that have no gradient."""
    found: list[Counted] = []
    for n in RANKS:
        for rule in RULES:
            for strategy, servers in (
                ("hybrid", 0),
                ("hybrid", 1),
                ("allreduce", 0),
                ("servers", 0),
                ("servers", 1),
            ):
                found += _of(rule, strategy, n, servers)
        wrong = [c for c in found if c.ranks == n and not c.holds]
        say(
            f"{n} ranks: bytes are those of the formulas"
            + (f", but {len(wrong)} are not: {wrong[0]}" if wrong else "")
        )
    return found


def _of(rule: str, strategy: str, ranks: int, servers: int) -> Iterator[Counted]:
    workers = ranks - servers
    tables = [f"update.nodes.{node}.{rule}" for node in ("embed", "output")]
    # Windows of unequal rows, a last one that not all ranks have, and ranges that do not divide by the ranks.
    given = [*SETTINGS, rule, *tables, f"train_instances={STEPS * workers - 1}"]
    given += [f"replicas.strategy={strategy}", f"replicas.servers={servers}"]
    model, cfg = configured("language-model", given, 1)
    sizes = {name: float(v.nbytes) for name, v in begun(model, cfg, engine).items()}
    found = trained(model, cfg, ranks, engine).synchronised
    assert found is not None
    for name, b in sorted(sizes.items()):
        moved = found.bytes.get(name, {"sent": 0.0, "received": 0.0})
        alpha = found.alpha.get(name)
        served = strategy == "servers" or (strategy == "hybrid" and alpha is not None)
        # What is told is of one rank on average. Servers alone send and receive as much as all workers.
        scale = ranks / (2 * workers) if served and servers else 1.0
        yield Counted(
            optimizer=rule.partition("=")[2],
            strategy=strategy,
            ranks=ranks,
            servers=servers,
            parameter=name,
            sent=moved["sent"] * scale,
            received=moved["received"] * scale,
            formula=formula(strategy, b, alpha, ranks, servers),
            exact=alpha is None or strategy == "allreduce" or servers > 0,
        )


def record(found: Sequence[Counted]) -> dict[str, object]:
    """`bytes_exact`: whether all are as the formulas say."""
    return {
        "bytes_exact": all(c.holds for c in found),
        "bytes": [{**asdict(c), "holds": c.holds} for c in found],
    }
