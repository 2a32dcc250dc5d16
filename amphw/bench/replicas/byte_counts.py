"""Bytes that ranks move, beside the formulas of Parallax (arXiv 1808.02621, Table 3).

They are those of `amphw.replicas.table3`, of what a rank sends in a step, on average over all ranks; it
receives as much. Rows of a table go round the servers, so how many lie on the rank's own is chance: where all
ranks are servers, too, the formula is an expectation.
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
    """One parameter of so many bytes. alpha: of a table. formula: bytes each way. exact: it is more than
    an expectation."""

    optimizer: str
    strategy: str
    ranks: int
    servers: int
    parameter: str
    bytes: int
    alpha: float | None
    sent: float
    received: float
    formula: float
    exact: bool

    @property
    def holds(self) -> bool:
        off = 1e-9 if self.exact else EXPECTATION
        return all(math.isclose(n, self.formula, rel_tol=off) for n in (self.sent, self.received))


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
    sizes = {name: v.nbytes for name, v in begun(model, cfg, engine).items()}
    found = trained(model, cfg, ranks, engine).synchronised
    assert found is not None
    for name, b in sorted(sizes.items()):
        moved = found.bytes[name]
        alpha = found.alpha.get(name)
        yield Counted(
            optimizer=rule.partition("=")[2],
            strategy=strategy,
            ranks=ranks,
            servers=servers,
            parameter=name,
            bytes=b,
            alpha=alpha,
            sent=moved["sent"],
            received=moved["received"],
            formula=found.formula[name],
            exact=alpha is None or strategy == "allreduce" or servers > 0,
        )


def record(found: Sequence[Counted]) -> dict[str, object]:
    """`bytes_exact`: whether all are as the formulas say."""
    return {
        "bytes_exact": all(c.holds for c in found),
        "bytes": [{**asdict(c), "holds": c.holds} for c in found],
    }
