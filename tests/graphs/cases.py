"""The graphs with the instances that they are tested on, for every test that runs over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.passes import replicate
from tests.daily import daily
from tests.graphs import decide, lookup, message_passing, rnn, tree
from tests.graphs.written import WRITTEN, Written
from tests.graphs.written_attention import WRITTEN_ATTENTION
from tests.graphs.written_decided import WRITTEN_DECIDED
from tests.graphs.written_edges import WRITTEN_EDGES
from tests.graphs.written_nested import WRITTEN_NESTED
from tests.graphs.written_sampled import WRITTEN_SAMPLED
from tests.graphs.written_tied import WRITTEN_TIED
from tests.graphs.written_within import WRITTEN_WITHIN


@dataclass(frozen=True)
class Case:
    """A graph and how to draw its instances; the degenerate ones come first."""

    name: str
    build: Callable[[], Graph]
    draw: Callable[[np.random.Generator], list[Instance]]

    def instances(self, seed: int = 0) -> list[Instance]:
        """The same instances for the same seed, numbered from 0."""
        drawn = self.draw(np.random.default_rng(seed))
        for number, instance in enumerate(drawn):
            instance.number = number
        return drawn


def _sequences(rng: np.random.Generator) -> list[Instance]:
    return [
        rnn.instance(rng, length=1),
        rnn.instance(rng, length=1, batch=3),
        rnn.instance(rng, length=2),
        rnn.instance(rng, length=5, batch=3),
        rnn.instance(rng),
    ]


def _trees(rng: np.random.Generator) -> list[Instance]:
    return [
        tree.instance(rng, leaves=1),
        tree.instance(rng, leaves=2),
        tree.instance(rng, leaves=6, shape="caterpillar"),
        tree.instance(rng, leaves=9),
        tree.instance(rng),
    ]


def _networks(rng: np.random.Generator) -> list[Instance]:
    return [
        message_passing.instance(rng, 1, []),
        message_passing.instance(rng, 3, []),
        message_passing.instance(rng, 1, [(0, 0)]),
        message_passing.instance(rng, 2, [(0, 1), (0, 1), (0, 1)]),
        # 0 and 4 are isolated, 1 has a loop and no other in-edge, 3 has no out-edge
        message_passing.instance(rng, 5, [(1, 1), (1, 2), (2, 3), (1, 3), (1, 3)]),
        message_passing.instance(rng, 6),
    ]


def _batches(rng: np.random.Generator) -> list[Instance]:
    return [decide.instance(rng, batch) for batch in (0, 1, 4, 7)]


def _lookups(rng: np.random.Generator) -> list[Instance]:
    return [
        lookup.instance(rng, length=1),
        lookup.instance(rng, length=1, batch=3),
        lookup.instance(rng, length=4, batch=8),
        lookup.instance(rng),
    ]


_WRITTEN = (*WRITTEN, *WRITTEN_ATTENTION, *WRITTEN_EDGES, *WRITTEN_NESTED, *WRITTEN_SAMPLED)
_LATER = (*WRITTEN_TIED, *WRITTEN_DECIDED, *WRITTEN_WITHIN)
"""Behind all others, as tests of a few cases take them by their place."""


def _of(written: Iterable[Written]) -> Iterable[Case]:
    return (Case(w.name, lambda w=w: w.compiled().graph, w.draw) for w in written)  # type: ignore[misc]


def _replicated(written: str, node: str, n: int, rule: str) -> Case:
    """A graph as it is written, with replicas of a node that has several in-ports."""
    (of,) = (w for w in _WRITTEN if w.name == written)
    return Case(f"replicas-{rule}", lambda: replicate(of.compiled().graph, node, n, rule), of.draw)


CASES = (
    Case("rnn-alternate", lambda: rnn.build(replicas="alternate"), _sequences),
    Case("rnn-hash", lambda: rnn.build(replicas="hash"), _sequences),
    Case("tree-leaves", lambda: tree.build(pump="leaves"), _trees),
    Case("tree-all", lambda: tree.build(pump="all"), _trees),
    Case("message-passing", lambda: message_passing.build(steps=2), _networks),
    Case("message-passing-three", lambda: message_passing.build(hidden=3, steps=3), _networks),
    Case("message-passing-dense", lambda: message_passing.build_dense(steps=2), _networks),
    Case("look-up", lookup.build, _lookups),
    Case("decide", decide.build, _batches),
    Case("decide-store", lambda: decide.build(exit="store"), _batches),
    *_of(_WRITTEN),
    _replicated("fe-tree", "branch", 3, "random"),
    _replicated("fe-network", "cell", 2, "hash"),
    *_of(_LATER),
)

RESTING = ("fe-skipping", "fe-book")
"""Cases with a loop of routes alone, in which devices put a node that the graph has not (`passes.rest`)."""

EVERYDAY = ("rnn-alternate", "tree-leaves", "message-passing-dense", "fe-nested")
"""Cases that together have every kind of node: those that `make test` runs."""


def each_case(cases: Iterable[Case] = CASES) -> pytest.MarkDecorator:
    """Runs a test with each case, as `case`; with those not in EVERYDAY in `make test-all` alone.

    Of `cases` without any of them the first runs every day.
    """
    cases = list(cases)
    everyday = {case.name for case in cases} & set(EVERYDAY) or {cases[0].name}
    marked = [
        pytest.param(case, marks=[] if case.name in everyday else pytest.mark.thorough) for case in cases
    ]
    return pytest.mark.parametrize("case", marked, ids=[case.name for case in cases])


def each_name(graphs: Iterable[str]) -> list[Any]:
    """Names of graphs as a parameter: cases that are not in EVERYDAY run in `make test-all` alone."""
    names, later = sorted(graphs), {case.name for case in CASES} - set(EVERYDAY)
    return daily([name for name in names if name not in later], [name for name in names if name in later])
