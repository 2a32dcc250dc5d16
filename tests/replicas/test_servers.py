"""Servers: what they make of all ranks' gradients, what ranks read, and how many bytes go where."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import amphw.replicas.synchronous as synchronous
from amphw.ir.exchange import NodeGradient, Rows, added
from amphw.ir.program import ParamSpec
from amphw.ir.sparse import SparseParameter, sparse_parameters
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.models import get_model
from amphw.replicas.collectives import all_reduce
from amphw.replicas.packed import Traffic
from amphw.replicas.placement import place_dense, place_tables
from amphw.replicas.servers import Servers
from amphw.replicas.synchronous import Synchronous
from tests.replicas.test_collectives import on_each
from tests.replicas.test_equivalence import RAGGED, alone, differences, together

RULES = [
    UpdateRule(optimizer="sgd", lr=0.1),
    UpdateRule(optimizer="adagrad", lr=0.1, reduce="sum"),
    UpdateRule(optimizer="lazy_adam", lr=0.1, schedule="exponential", schedule_steps=2),
    UpdateRule(optimizer="adam", lr=0.1, clip=0.2),
    UpdateRule(optimizer="nadam", lr=0.1),
    UpdateRule(optimizer="momentum", lr=0.1, weight_decay=0.01),
]
SHAPES = {"E": (11, 3), "F": (7, 2), "W": (3, 5), "b": (5,)}
TABLES = [SparseParameter("node", name, SHAPES[name], ()) for name in ("E", "F")]
DENSE = [("node", "W"), ("node", "b")]


def parameters(rule: UpdateRule) -> dict[str, NodeParameters]:
    specs = tuple(ParamSpec(name, shape, "normal") for name, shape in SHAPES.items())
    return {"node": NodeParameters.initial("node", specs, rule, 1, np.float64)}


def gradient(rng: np.random.Generator, rows: int) -> NodeGradient:
    """Of a rank, which may have touched anything from no row to all."""
    arrays = {name: rng.normal(size=SHAPES[name]) for _, name in DENSE}
    tables = {}
    for t in TABLES:
        numbers = np.flatnonzero(rng.random(t.shape[0]) < rng.random()).astype(np.int32)
        tables[t.name] = Rows(numbers, rng.normal(size=(len(numbers), t.shape[1])))
    return NodeGradient(rows, arrays, tables)


class Steps:
    """Some steps of `workers` ranks that train; servers: ranks that only serve; machine: ranks of one."""

    def __init__(self, rule: UpdateRule, workers: int, servers: int, machine: int, seed: int):
        self.rule, self.working, self.machine = rule, range(workers), machine
        self.ranks = workers + servers
        rng = np.random.default_rng(seed)
        self.rows = [rng.integers(0, 4, workers).tolist() for _ in range(3)]
        self.gradients = [[gradient(rng, r) for r in rows] for rows in self.rows]
        self.reads = [[gradient(rng, 0).tables for _ in range(workers)] for _ in range(3)]
        self.traffic = [Traffic() for _ in range(self.ranks)]
        self.found: list[list[dict[str, Any]]] = [[{} for _ in self.working] for _ in range(3)]
        self.whole = parameters(rule)

    def run(self) -> Steps:
        on_each(self.ranks, self._rank)
        return self

    def _rank(self, transport: Any) -> None:
        serving = [r for r in range(self.ranks) if r not in self.working] or list(range(self.ranks))
        here = transport.rank // self.machine * self.machine
        machine = [r for r in range(here, here + self.machine) if r in self.working]
        mine = Servers(transport, parameters(self.rule), DENSE, TABLES, serving, self.working, machine)
        traffic = self.traffic[transport.rank]
        untouched = {t.name: Rows.touched(np.zeros(t.shape)) for t in TABLES}
        nothing = NodeGradient(0, {n: np.zeros(SHAPES[n]) for _, n in DENSE}, untouched)
        works = transport.rank in self.working
        for step in range(3):
            rows = {"node": sum(self.rows[step])}
            pushed = self.gradients[step][transport.rank] if works else nothing
            reads = self.reads[step][transport.rank] if works else untouched
            sizes = mine.plan({"node": pushed}, {f"node.{t.name}": reads[t.name].numbers for t in TABLES})
            all_reduce(transport, sizes.reshape(-1))
            mine.push(sizes, traffic)
            mine.reduce(rows, dict.fromkeys([f"node.{n}" for n in SHAPES], 1.0))
            mine.update(rows)
            pulled = mine.pull(True, traffic)
            if works:
                self.found[step][transport.rank] = pulled["node"]
        if transport.rank == 0:
            mine.gather(self.whole)
        else:
            mine.gather(None)


@settings(max_examples=25)
@given(st.sampled_from(RULES), st.integers(1, 4), st.integers(0, 2), st.integers(1, 3), st.integers(0, 2**31))
def test_ranks_pull_what_one_process_would_have(
    rule: UpdateRule, workers: int, servers: int, machine: int, seed: int
) -> None:
    """Full updates of rows that nobody touched included, and norms of parameters that lie on several."""
    steps = Steps(rule, workers, servers, machine, seed).run()
    one = parameters(rule)["node"]
    for step in range(3):
        for g in steps.gradients[step]:
            one.rows += g.rows
            for name, array in g.arrays.items():
                one.gradients[name] += array
            for name, rows in g.tables.items():
                one.gradients[name][rows.numbers] += rows.values
        if one.rows:
            one.publish(one.prepare())
        else:  # what ranks without rows push is not applied
            for array in one.gradients.values():
                array[...] = 0
        for found, reads in zip(steps.found[step], steps.reads[step], strict=True):
            for _, name in DENSE:
                np.testing.assert_allclose(found[name], one.values[name], rtol=0, atol=1e-12)
            for t in TABLES:
                assert found[t.name].numbers.tolist() == reads[t.name].numbers.tolist()
                expected = one.values[t.name][reads[t.name].numbers]
                np.testing.assert_allclose(found[t.name].values, expected, rtol=0, atol=1e-12)
    whole = steps.whole["node"]
    for name, value in one.values.items():
        np.testing.assert_allclose(whole.values[name], value, rtol=0, atol=1e-12)
        for slot, other in zip(whole.slots[name], one.slots[name], strict=True):
            np.testing.assert_allclose(slot, other, rtol=0, atol=1e-12)


@settings(max_examples=25)
@given(st.sampled_from(RULES[:3]), st.integers(1, 4), st.integers(1, 2), st.integers(0, 2**31))
def test_a_worker_of_separate_servers_sends_what_it_touched_and_receives_what_it_reads(
    rule: UpdateRule, workers: int, servers: int, seed: int
) -> None:
    """Dense b and sparse alpha b each way, as in Table 3 of Parallax."""
    steps = Steps(rule, workers, servers, 1, seed).run()
    for rank in steps.working:
        traffic = steps.traffic[rank]
        for _, name in DENSE:
            b = 3 * 8 * int(np.prod(SHAPES[name]))
            assert traffic.sent[f"node.{name}"] == traffic.received[f"node.{name}"] == b
        for t in TABLES:
            row = 8 * t.shape[1]
            touched = sum(len(g[rank].tables[t.name].numbers) for g in steps.gradients)
            read = sum(len(r[rank][t.name].numbers) for r in steps.reads)
            assert traffic.sent[f"node.{t.name}"] == row * touched
            assert traffic.received[f"node.{t.name}"] == row * read


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(0, 2**31))
def test_ranks_that_serve_as_well_move_all_but_their_own_part(ranks: int, seed: int) -> None:
    """Summed over ranks each way: of a dense parameter 2 (N - 1) b, of a table whatever lies on others."""
    steps = Steps(RULES[0], ranks, 0, 1, seed).run()
    places = place_tables({f"node.{t.name}": t.shape[0] for t in TABLES}, ranks)
    for _, name in DENSE:
        b = 3 * 8 * int(np.prod(SHAPES[name]))
        full = f"node.{name}"
        assert sum(t.sent.get(full, 0) for t in steps.traffic) == 2 * (ranks - 1) * b
        assert sum(t.received.get(full, 0) for t in steps.traffic) == 2 * (ranks - 1) * b
    for t in TABLES:
        full, away = f"node.{t.name}", 0
        for rank in range(ranks):
            for numbers in [
                *(g[rank].tables[t.name].numbers for g in steps.gradients),
                *(r[rank][t.name].numbers for r in steps.reads),
            ]:
                away += int((places[full].server_of(numbers) != rank).sum())
        assert sum(x.sent.get(full, 0) for x in steps.traffic) == 8 * t.shape[1] * away
        assert sum(x.received.get(full, 0) for x in steps.traffic) == 8 * t.shape[1] * away


@settings(max_examples=50)
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 40), min_size=1),
    st.dictionaries(st.sampled_from("uvwxyz"), st.integers(1, 40), min_size=1),
    st.integers(1, 7),
)
def test_servers_are_balanced_to_within_a_row(
    tables: dict[str, int], dense: dict[str, int], servers: int
) -> None:
    places = place_tables(tables, servers)
    counts = [sum(len(range(n)[places[t].owned(k)]) for t, n in tables.items()) for k in range(servers)]
    assert sum(counts) == sum(tables.values()) and max(counts) - min(counts) <= 1
    for t, n in tables.items():
        numbers = np.arange(n)
        owners = places[t].server_of(numbers)
        for k in range(servers):
            mine = numbers[places[t].owned(k)]
            assert mine.tolist() == numbers[owners == k].tolist()
            assert places[t].local(mine, k).tolist() == list(range(len(mine)))
    parts = place_dense(dense, servers)
    sizes = [sum(parts[d][k].stop - parts[d][k].start for d in dense) for k in range(servers)]
    assert sum(sizes) == sum(dense.values()) and max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("strategy", ["hybrid", "servers"])
@pytest.mark.parametrize("others", [[], ["replicas.servers=1"], ["replicas.machine_ranks=2"]], ids=" ".join)
def test_rows_that_were_not_pulled_since_the_last_update_are_not_read(
    strategy: str, others: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows are made NaN, on every rank, after each update; a loss would show it."""
    place, exchange, put = Synchronous.place, Synchronous.exchange, synchronous.put
    stepping = threading.local()
    pulls: list[tuple[int, tuple[int, ...]]] = []

    def poison(device: Any) -> None:
        held = device.parameters()["embed"]
        held.values = {**held.values, "E": np.full_like(held.values["E"], np.nan)}

    def placed(self: Any, device: Any, *rest: Any) -> None:
        first = not self._placed
        place(self, device, *rest)
        if first:
            poison(device)

    def exchanged(self: Any, *given: Any) -> None:
        stepping.now = True
        exchange(self, *given)
        stepping.now = False

    def pulled(device: Any, values: Any) -> None:
        if getattr(stepping, "now", False):
            poison(device)
        put(device, values)
        pulls.append((id(device), tuple(values["embed"]["E"].numbers.tolist()) if values else ()))

    monkeypatch.setattr(Synchronous, "place", placed)
    monkeypatch.setattr(Synchronous, "exchange", exchanged)
    monkeypatch.setattr(synchronous, "put", pulled)
    model = get_model("tree-lstm")
    small = [*RAGGED["tree-lstm"], "optimizer=adam", "lr=0.01", "weight_decay=0.001"]
    ranks = 3
    working = ranks - (others == ["replicas.servers=1"])
    one, _ = alone(model, working, *small)
    every, _ = together(model, ranks, 1, *small, f"replicas.strategy={strategy}", *others)
    assert differences(every[0], one) < 1e-10
    assert len({rank for rank, _ in pulls}) == ranks and len(set(pulls)) > 10  # each reads others


def test_sums_of_rows_are_taken_in_the_order_of_the_parts() -> None:
    big, small = np.float32(2**24), np.float32(1)
    parts = [Rows(np.array([3], np.int32), np.array([[v]], np.float32)) for v in (big, small, -big)]
    assert added(parts).values.tolist() == [[0.0]]
    assert added([parts[0], parts[2], parts[1]]).values.tolist() == [[1.0]]


def test_tables_that_are_looked_up_alone_are_sparse_and_their_rows_known() -> None:
    model = get_model("list-reduction")
    config = model.config(hidden=8, batch=2)
    (table,) = sparse_parameters(model.graph(config))
    assert (table.node, table.name, table.shape[0]) == ("cell", "E", 14)
    instances = list(model.training(config, 1, 0, 8))
    tokens = np.unique(np.concatenate([i.tables["tokens"].reshape(-1) for i in instances[:2]]))
    assert table.rows(instances[:2]).tolist() == tokens.tolist()
