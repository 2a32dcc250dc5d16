"""Graphs that passes are tried on, and what of a run must stay as it was."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.graph import Graph
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from amphw.models.ggnn import GGNN, GGNNConfig
from amphw.models.list_reduction import ListReductionConfig, ListReductionRNN
from amphw.models.mnist import MnistConfig, MnistMLP
from tests.graphs.cases import CASES, Case

Values = Mapping[str, Mapping[str, np.ndarray]]

LISTS, DIGITS = ListReductionRNN(), MnistMLP()

SMALL_LISTS = {
    cell: ListReductionConfig(hidden=4, embedding=3, batch=5, cell=cell)  # type: ignore[arg-type]
    for cell in ("rnn", "gru")
}

SMALL_DIGITS = MnistConfig(width=6, batch=3, sample=True)

SMALL_MOLECULES = GGNNConfig(hidden=4, steps=2, sample=True)

ALL = (
    *CASES,
    *(
        Case(
            f"list-reduction-{cell}",
            lambda cfg=cfg: LISTS.graph(cfg),  # type: ignore[misc]
            lambda rng, cfg=cfg: list(LISTS.training(cfg, 0, 1, 30)),  # type: ignore[misc]
        )
        for cell, cfg in SMALL_LISTS.items()
    ),
    Case(
        "mnist", lambda: DIGITS.graph(SMALL_DIGITS), lambda rng: list(DIGITS.training(SMALL_DIGITS, 0, 1, 9))
    ),
    Case(
        "ggnn",
        lambda: GGNN().graph(SMALL_MOLECULES),
        lambda rng: list(GGNN().training(SMALL_MOLECULES, 0, 1, 3)),
    ),
)

cases = st.sampled_from(ALL)

seeds = st.integers(0, 2**16)

some = settings(max_examples=30)


@cache
def graph_of(case: Case) -> Graph:
    return case.build()


def drawn(graph: Graph, seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Parameters unlike those that a device begins with, none of them 0."""
    rng = np.random.default_rng(seed)
    return {
        node: {p.name: rng.normal(0.0, 0.5, p.shape) for p in graph.nodes[node].params}
        for node in graph.parameterised
    }


def run(
    graph: Graph, case: Case, values: Values, mode: Mode = Mode.TRAIN
) -> tuple[dict[int, float], dict[str, dict[str, np.ndarray]]]:
    """Losses by instance, and gradients."""
    device = ReferenceDevice("fifo", np.float64)
    device.load(graph, {"*": UpdateRule()}, DeviceOptions(updates="off", seed=3))
    parameters = device.parameters()
    assert {n: set(p.values) for n, p in parameters.items()} == {n: set(v) for n, v in values.items()}
    for node, arrays in values.items():
        for name, array in arrays.items():
            assert parameters[node].values[name].shape == array.shape
            parameters[node].values[name] = array
    instances = case.instances()
    for number, instance in enumerate(instances):
        instance.number = number
        device.submit(number, 0, instance, mode)
    losses = {r.number: sum(s["loss"] for s in r.sums.values()) for r in device.drain()}
    return losses, {n: dict(p.gradients) for n, p in device.parameters().items()}


def assert_same(found: Values, expected: Values) -> None:
    assert found.keys() == expected.keys()
    for node, arrays in expected.items():
        for name, array in arrays.items():
            np.testing.assert_allclose(
                found[node][name], array, rtol=1e-8, atol=1e-11, err_msg=f"{node}.{name}"
            )
