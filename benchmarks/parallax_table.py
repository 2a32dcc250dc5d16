"""The training strategies at the sizes of Parallax (Kim et al., arXiv 1808.02621), in simulated time.

    python benchmarks/parallax_table.py [--json FILE]

48 ranks on 8 machines, whose interfaces make 100 Gb/s, and a server on each machine. The steps of the paper's
table 4 are compared, and its three systems. What is taken from measurements of the paper are the rates of
one GPU and the first column of table 4. From its two numbers two rates are found, the same for both models:
at which a machine handles rows (`Machines.handling`), and what is dense and served. No later number has a
say. Ranks exchange with the strategies of training.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from record import save

from amphw import frontend as fe
from amphw.ir.instance import Instance
from amphw.ir.program import ParamSpec
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.replicas.recorded import Send
from amphw.replicas.rehearsal import Pace, Rehearsed, Work, rehearse
from amphw.replicas.simulated import Machines
from amphw.replicas.synchronous import Synchronous

MACHINES, GPUS = 8, 6
WORKING = MACHINES * GPUS
NIC = 100e9 / 8
"""Bytes a second: the interfaces of the paper's cluster, 100 Gb/s."""
MEMORY = 10e9
"""Bytes a second between processes of a machine: assumed, about what a core copies."""
LATENCY = 5e-6
"""Seconds of a message: assumed; a tenth or ten times of it changes nothing here."""
WIDTH = 16
"""Numbers of a table's row as it is simulated; everything stands for as many times more."""
STEPS = 2


@dataclass(frozen=True)
class Case:
    """dense, touched: elements, of which a rank touches so many of its tables in a step (table 1). words: of
    a rank in a step. alone: words a second of one GPU. printed: words a second of table 4, in thousands."""

    dense: float
    touched: float
    vocabulary: int
    width: int
    words: int
    alone: float
    printed: tuple[float, ...]

    @property
    def scale(self) -> float:
        return self.width / WIDTH

    @property
    def rows(self) -> int:
        """That a rank touches of each of the two tables; the paper has the sum."""
        return round(self.touched / self.width / 2)


CASES = {
    # Two tables (embedding, sampled softmax) of 793,471 words; 128 sequences of 20 words (assumed).
    # Jozefowicz et al., arXiv 1602.02410, has the model.
    "LM": Case(9.4e6, 6.5e6, 793_471, 512, 2560, 29.4e3, (101, 112, 251, 259, 276)),
    # 75 million elements in two tables of width 1,024; 128 sentences, taken to have 25 words on average.
    "NMT": Case(94.1e6, 7e6, 36_548, 1024, 3200, 11.2e3, (87, 117, 188, 188, 191)),
}
COLUMNS = ("servers", "+ hybrid", "+ partitioned", "+ local aggregation", "+ placement of operations")


class Listed(list[Instance]):
    @property
    def size(self) -> int:
        return len(self)


@lru_cache(maxsize=2)
def drawn(case: Case, instances: int, tables: int) -> np.ndarray:
    """int [instances, tables, rows]: distinct words by Zipf's law, as whoever draws until there are so many.

    Numbers are those among the words that occur at all, most frequent first: what nobody reads has no row."""
    rng = np.random.default_rng(7)
    ranks = np.arange(1, case.vocabulary + 1)
    words = np.stack(
        [
            np.argpartition(rng.exponential(size=case.vocabulary) * ranks, case.rows)[: case.rows]
            for _ in range(instances * tables)
        ]
    )
    _, numbers = np.unique(words, return_inverse=True)
    return numbers.reshape(instances, tables, case.rows)


def work_of(case: Case, partitioned: bool) -> Work:
    """Tables go round the servers by rows. One that is not partitioned has rows of one server alone."""
    words = drawn(case, WORKING * (STEPS + 1), 2)
    rows = int(words.max()) + 1
    size = MACHINES * rows
    if not partitioned:
        words = words * MACHINES + np.arange(2).reshape(1, 2, 1)
    both = fe.Record(a=fe.Int(size), b=fe.Int(size), label=fe.Int(2))
    first = fe.Embedding(size, WIDTH, init="zeros", name="first")
    second = fe.Embedding(size, WIDTH, init="zeros", name="second")
    head = fe.Linear(2, name="head")

    def model(x: Any) -> None:
        together = fe.concat(first(x.words.a), second(x.words.b))
        fe.classify(head(fe.group(together, x.words)), x.words.label)

    compiled = fe.compile(model, fe.Record(words=fe.Sequence(both, case.rows)), "parallax")
    label = np.zeros(case.rows, np.int64)
    instances = Listed(
        compiled.encode({"words": {"a": np.sort(a), "b": np.sort(b), "label": label}}) for a, b in words
    )
    rule = UpdateRule(optimizer="sgd", reduce="sum")
    shapes = {
        "first": ("E", (size, WIDTH)),
        "second": ("E", (size, WIDTH)),
        "rest": ("W", (round(case.dense / case.scale),)),
    }
    parameters = {
        node: NodeParameters.of((ParamSpec(name, shape, "zeros"),), rule, {name: np.zeros(shape, np.float32)})
        for node, (name, shape) in shapes.items()
    }
    rules = dict.fromkeys(parameters, rule)
    return Work(compiled.graph, rules, parameters, instances, 1, Pace(case.words / case.alone), case.scale)


def rehearsed(work: Work, name: str, dense: bool, sparse: bool, machine: int = 1) -> Rehearsed:
    serving = MACHINES if dense or sparse else 0
    make = lambda: Synchronous(name, dense, sparse, servers=serving, machine=machine)  # noqa: E731
    return rehearse(WORKING + serving, make, work, steps=STEPS)


def weighed(found: Rehearsed, case: Case, dense: float) -> Rehearsed:
    """A server's part of all that is dense, which each message has, counts `dense` times when handled."""
    part = 4 * case.dense / MACHINES
    acts = [
        [
            replace(act, handled=act.bytes + (dense - 1) * part)
            if isinstance(act, Send) and act.kind == "served"
            else act
            for act in each
        ]
        for each in found.acts
    ]
    return replace(found, acts=acts)


def words_per_s(found: Rehearsed, case: Case, handling: float) -> float:
    of = [rank // GPUS for rank in range(WORKING)] + list(range(len(found.acts) - WORKING))
    machines = Machines(of, NIC, LATENCY, MEMORY, handling)
    return found.on(machines).instances_per_s * case.words


def halving(low: float, high: float, beyond: Callable[[float], bool]) -> float:
    """The number beyond which all are `beyond`, to 1 in 1,000."""
    while high > 1.001 * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return (low * high) ** 0.5


def calibrated(base: Mapping[str, Rehearsed]) -> tuple[float, float]:
    """Bytes a second of rows, and how much longer a byte of what is dense takes, from the first column."""
    dense, handling = 0.1, 1e9

    def too_fast(name: str, handling: float, dense: float) -> bool:
        case = CASES[name]
        return words_per_s(weighed(base[name], case, dense), case, handling) > case.printed[0] * 1e3

    def too_slow(handling: float, dense: float) -> bool:
        return not too_fast("NMT", handling, dense)

    for _ in range(3):  # LM is sparse and NMT is dense, so each settles its own rate
        handling = halving(handling / 16, handling * 16, partial(too_fast, "LM", dense=dense))
        dense = halving(1e-3, 1.0, partial(too_slow, handling))
    return handling, dense


def compared(case: Case, base: Rehearsed, handling: float, dense: float) -> dict[str, Any]:
    whole, parts = work_of(case, partitioned=False), work_of(case, partitioned=True)
    local = rehearsed(parts, "hybrid", False, True, GPUS)
    steps = [
        weighed(base, case, dense),
        rehearsed(whole, "hybrid", False, True),
        rehearsed(parts, "hybrid", False, True),
        local,
        local,  # which operation runs where moves no bytes
    ]
    rates = [words_per_s(each, case, handling) for each in steps]
    rows = []
    for k, (name, rate, printed) in enumerate(zip(COLUMNS, rates, case.printed, strict=True)):
        gain, paper = (rate / rates[k - 1], printed / case.printed[k - 1]) if k else (1.0, 1.0)
        rows.append(
            {"step": name, "words_per_s": rate, "paper": printed * 1e3, "gain": gain, "paper_gain": paper}
        )
    gathered = rehearsed(parts, "allreduce", False, False)
    systems = {
        "hybrid": rates[-1],
        "servers": rates[0],
        "allreduce": words_per_s(gathered, case, handling),
    }
    return {"steps": rows, "systems_words_per_s": systems}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where the record is written")
    args = parser.parse_args()
    base = {
        n: rehearsed(work_of(case, partitioned=False), "servers", True, True) for n, case in CASES.items()
    }
    handling, dense = calibrated(base)
    print(
        f"handled, from the first column: rows {handling / 1e9:.2f} GB/s, dense {handling / dense / 1e9:.2f}"
    )
    found = {}
    for name, case in CASES.items():
        found[name] = compared(case, base[name], handling, dense)
        print(name)
        for row in found[name]["steps"]:
            print(
                f"  {row['step']:28}{row['words_per_s'] / 1e3:8.0f} k words/s, paper {row['paper'] / 1e3:.0f}"
                f"; gain {row['gain']:.2f}, paper {row['paper_gain']:.2f}"
            )
        for system, rate in found[name]["systems_words_per_s"].items():
            print(f"  {system:28}{rate / 1e3:8.0f} k words/s")
    if args.json:
        rates = {"rows_bytes_per_s": handling, "dense_bytes_per_s": handling / dense}
        save({"calibrated": rates, "cases": found}, args.json)


if __name__ == "__main__":
    sys.exit(main())
