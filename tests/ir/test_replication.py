"""Copies of a node: results stay as they were, and each copy gets its share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from amphw.ir.check import infer
from amphw.ir.errors import GraphError
from amphw.ir.expr import evaluate
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.passes import RULES, replicate
from amphw.ir.state import KeySpace, StateType, state_field
from tests.graphs.cases import Case
from tests.ir.pass_checks import (
    ALL,
    DIGITS,
    SMALL_DIGITS,
    assert_same,
    cases,
    drawn,
    graph_of,
    run,
    seeds,
    some,
)


@some
@given(cases, seeds, st.integers(2, 3), st.sampled_from(sorted(RULES)), st.data())
def test_replicate(case: Case, seed: int, n: int, rule: str, data: st.DataObject) -> None:
    """Also of several in-ports: a firing whose messages met at different copies would never be complete."""
    before = graph_of(case)
    names = _replicable(before, rule)
    assume(names)
    chosen = data.draw(st.sampled_from(names))
    after = replicate(before, chosen, n, rule, seed)
    values = drawn(before, seed)
    copies = [f"{chosen}_{k}" for k in range(n)]
    losses, gradients = run(before, case, values)
    rest = {k: v for k, v in values.items() if k != chosen}
    found, theirs = run(after, case, rest | dict.fromkeys(copies, values[chosen]))
    assert found == pytest.approx(losses, rel=1e-10)
    summed = {p: np.sum([theirs[c][p] for c in copies], axis=0) for p in values[chosen]}
    assert_same({k: v for k, v in theirs.items() if k not in copies} | {chosen: summed}, gradients)


@some
@given(seeds, st.integers(2, 8), st.sampled_from(["hash", "random"]))
def test_each_replica_gets_its_share(seed: int, n: int, rule: str) -> None:
    """Of 4,000 states a share within 5 standard deviations; and all of it is a matter of the seed."""
    state = StateType((state_field("a", 40), state_field("b", 100)))
    instance = Instance(number=seed % 11)
    env = KeySpace(state, instance).env()
    chosen = evaluate(RULES[rule](state, n, seed), env)
    assert (chosen == evaluate(RULES[rule](state, n, seed), env)).all()
    shares = np.bincount(chosen, minlength=n)
    assert len(shares) == n
    assert np.abs(shares - 4000 / n).max() < 5 * np.sqrt(4000 / n)


def test_least_loaded_takes_instances_in_turn() -> None:
    state = StateType((state_field("a", 3),))
    spaces = [KeySpace(state, Instance(number=k)) for k in range(8)]
    chosen = [set(evaluate(RULES["least-loaded"](state, 4, 0), s.env()).tolist()) for s in spaces]
    assert chosen == [{k % 4} for k in range(8)]


def test_a_random_replica_depends_on_the_instance_and_the_seed_and_a_hash_does_not() -> None:
    state = StateType((state_field("a", 50),))

    def chosen(rule: str, number: int, seed: int) -> list[int]:
        env = KeySpace(state, Instance(number=number)).env()
        return evaluate(RULES[rule](state, 4, seed), env).tolist()

    assert len({tuple(chosen("random", number, 1)) for number in range(20)}) == 4
    assert chosen("random", 1, 1) != chosen("random", 1, 2)
    assert chosen("hash", 1, 1) == chosen("hash", 2, 2)


@pytest.mark.parametrize(
    ("node", "n", "rule", "message"),
    [
        ("linear9", 2, "random", "there is no such node to replicate"),
        ("linear2", 0, "random", "0 replicas; take 1 or more"),
        ("loss", 2, "random", "a Loss cannot be replicated"),
        ("image", 2, "random", "a Source cannot be replicated"),
        ("linear2", 2, "hash", "linear2': its state has no fields"),
    ],
)
def test_what_cannot_be_replicated_says_why(node: str, n: int, rule: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        replicate(DIGITS.graph(SMALL_DIGITS), node, n, rule)


def test_two_replicated_nodes_are_both_remembered() -> None:
    case = next(c for c in ALL if len(_replicable(graph_of(c))) > 1)
    first, second = _replicable(graph_of(case))[:2]
    after = replicate(replicate(graph_of(case), first, 2), second, 3)
    assert after.replicas == [
        (f"{first}_0", f"{first}_1"),
        (f"{second}_0", f"{second}_1", f"{second}_2"),
    ]


def _replicable(graph: Graph, rule: str = "least-loaded") -> list[str]:
    """Nodes with parameters that are no copies; a hash wants some state."""
    behaviours = infer(graph).behaviours
    names = [n for n in graph.parameterised if not any(n in group for group in graph.replicas)]
    return [n for n in names if rule != "hash" or behaviours[n].state.fields]
