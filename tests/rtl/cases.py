"""The suite's graphs as the hardware's tests use them: how large a device, which graphs, which updates."""

from __future__ import annotations

from functools import cache

from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from tests.graphs.cases import CASES, Case

SMALL = {"lanes": 4, "payload": 1 << 14, "firings": 1 << 10, "places": 1 << 11, "table": 1 << 12}
INSTANCES = 12

QUICK = ("tree-leaves", "message-passing", "fe-ponder")
MAPPED = (
    *QUICK,
    "tree-all", "message-passing-three", "message-passing-dense", "look-up", "fe-gru", "fe-tagger",
    "fe-letters", "fe-batch", "fe-any-tree", "fe-network", "fe-network-rows", "fe-by-number", "replicas-hash",
    "fe-ways", "fe-wander", "fe-book", "fe-scenes",
)  # fmt: skip
"""Graphs whose nodes the hardware has; the others are refused."""


def case(name: str) -> Case:
    return next(c for c in CASES if c.name == name)


@cache
def problem(name: str) -> tuple[Graph, list[Instance]]:
    """A graph and its first instances."""
    drawn: list[Instance] = []
    seed = 0
    while len(drawn) < INSTANCES:
        drawn += case(name).instances(seed)
        seed += 1
    return case(name).build(), drawn[:INSTANCES]


def rule(name: str) -> UpdateRule:
    """Both optimisers and several intervals occur."""
    number = MAPPED.index(name)
    return UpdateRule(interval=3 + number, lr=0.05, optimizer=("momentum", "sgd")[number % 2])
