"""Folding: which products it takes, and that training does not notice.

The code that comes of it is tested in tests/engine/tiles/test_tile_code.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.engine.lowering.lower import lower
from amphw.engine.tiles.code import Fold
from amphw.engine.tiles.fold import FOLD_ROWS, folds
from amphw.engine.tiles.tiling import tile
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.expr import Field
from amphw.ir.functions import concat, dropout, linear, relu, row_param, take, tanh
from amphw.ir.optimizers import OPTIMIZERS
from amphw.ir.passes import fuse
from amphw.ir.program import Params, Value, trace
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from tests.cpu_runtime.running import Loader, gradients, values
from tests.graphs import lookup

SHAPES: dict[str, tuple[int, ...]] = {"E": (7, 4), "W": (7, 5), "b": (5,)}
Function = Callable[[Params, Value], Value]


def word(p: Params) -> Value:
    return take(p.E, Field("i"))


def folded(function: Function, **shapes: tuple[int, ...]) -> tuple[Fold, ...]:
    """The folds of a program of an operand h [3]; shapes: in addition to SHAPES, () takes one away."""
    wanted = {name: shape for name, shape in {**SHAPES, **shapes}.items() if shape}
    return folds(trace(function, {"h": 3}, wanted))


# --- what is folded -----------------------------------------------------------------------------


def test_an_embedding_in_front_of_the_rest() -> None:
    (found,) = folded(lambda p, h: linear(concat(word(p), h), p.W, p.b))
    assert found == Fold(table=0, weight=1, first_row=0, width=4, bias=2)
    assert found.rest == 4


def test_an_embedding_behind_the_rest_and_no_bias() -> None:
    (found,) = folded(lambda p, h: concat(tanh(h), word(p)) @ p.W, b=())
    assert found == Fold(table=0, weight=1, first_row=3, width=4)
    assert found.rest == 0


def test_an_embedding_alone() -> None:
    found = folded(lambda p, h: linear(word(p), p.W, p.b), W=(4, 5))
    assert found == (Fold(table=0, weight=1, first_row=0, width=4, bias=2),)


def test_a_concatenation_of_concatenations() -> None:
    found = folded(lambda p, h: linear(concat(concat(word(p), h), h), p.W, p.b), W=(10, 5))
    assert found == (Fold(table=0, weight=1, first_row=0, width=4, bias=2),)


def test_a_bias_that_is_added_to_a_sum() -> None:
    found = folded(lambda p, h: concat(word(p), h) @ p.W + h @ p.U + row_param(p.b), U=(3, 5))
    assert [f.bias for f in found] == [2]


def test_two_products_of_one_sum_do_not_share_a_bias() -> None:
    def function(p: Params, h: Value) -> Value:
        return word(p) @ p.W + concat(h, take(p.F, Field("j"))) @ p.U + row_param(p.b)

    found = folded(function, W=(4, 5), F=(6, 2), U=(5, 5))
    assert [(f.table, f.weight, f.bias) for f in found] == [(0, 1, 2), (3, 4, -1)]


def test_of_two_embeddings_in_one_product_the_first_is_folded() -> None:
    found = folded(lambda p, h: linear(concat(word(p), take(p.F, Field("j"))), p.W, p.b), F=(6, 3))
    assert [f.table for f in found] == [0]


@pytest.mark.parametrize(("rows", "count"), [(FOLD_ROWS, 1), (FOLD_ROWS + 1, 0)])
def test_only_tables_of_few_rows(rows: int, count: int) -> None:
    assert len(folded(lambda p, h: linear(concat(word(p), h), p.W, p.b), E=(rows, 4))) == count


def _read_twice(p: Params, h: Value) -> Value:
    both = concat(word(p), h)
    return concat(linear(both, p.W, p.b), both)


LEFT_ALONE: dict[str, tuple[Function, dict[str, tuple[int, ...]]]] = {
    "changed before the product": (lambda p, h: linear(concat(relu(word(p)), h), p.W, p.b), {}),
    "dropped out": (lambda p, h: linear(concat(dropout(word(p), 0.5, [Field("i")]), h), p.W, p.b), {}),
    "read by something else": (lambda p, h: concat(linear(concat(word(p), h), p.W, p.b), word(p)), {}),
    "concatenation read by something else": (_read_twice, {}),
    "another row is taken": (
        lambda p, h: concat(linear(concat(word(p), h), p.W, p.b), take(p.E, Field("j"))),
        {},
    ),
    "weight of two products": (
        lambda p, h: concat(word(p) @ p.W, (h @ p.U) @ p.W),
        {"U": (3, 4), "W": (4, 5)},
    ),
    "in the middle": (lambda p, h: linear(concat(h, word(p), h), p.W, p.b), {"W": (10, 5)}),
    "result": (lambda p, h: concat(word(p), h @ p.W, row_param(p.b)), {"W": (3, 5)}),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_is_left_alone(name: str) -> None:
    function, shapes = LEFT_ALONE[name]
    unused = {"b": ()} if name == "weight of two products" else {}
    assert folded(function, **shapes, **unused) == ()


def test_a_bias_that_is_read_elsewhere_is_added_as_ever() -> None:
    (found,) = folded(lambda p, h: linear(concat(word(p), h), p.W, p.b) * row_param(p.b))
    assert found.bias == -1


def test_the_conformance_graph_has_every_kind() -> None:
    units = {u.name: u for u in lower(fuse(lookup.build())).units}
    found = {
        n: [(f.first_row, f.bias >= 0) for f in tile(units[n]).folds]
        for n in ("cell", "behind", "alone", "large")
    }
    assert found == {"cell": [(0, True)], "behind": [(5, False)], "alone": [(0, True)], "large": []}


# --- training -----------------------------------------------------------------------------------


def references(rule: UpdateRule) -> ReferenceDevice:
    device = ReferenceDevice("fifo", np.float64)
    device.load(lookup.build(), {"*": rule}, DeviceOptions(8, 0, "controller", 3))
    return device


def both(load: Loader, rule: UpdateRule) -> tuple[CpuDevice, ReferenceDevice]:
    return load(lookup.build(), rule, updates="controller", workers=2), references(rule)


def feed(device: CpuDevice | ReferenceDevice, seed: int, mode: Mode = Mode.TRAIN) -> float:
    """Run some instances -> their loss."""
    rng = np.random.default_rng(seed)
    for slot in range(6):
        instance = lookup.instance(rng, batch=slot + 1)
        instance.number = 10 * seed + slot
        device.submit(slot, 0, instance, mode)
    return sum(r.sums["loss"]["loss"] for r in device.drain())


def assert_close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_updates_like_on_the_reference(load: Loader, optimizer: str) -> None:
    """Every version has a table of its own, and inference reads the newest."""
    device, expected = both(load, UpdateRule(optimizer=optimizer, lr=0.01, weight_decay=0.001, clip=1.0))
    for seed in range(5):
        assert feed(device, seed) == pytest.approx(feed(expected, seed), rel=1e-4)
        for each in (device, expected):
            each.update()
    assert feed(device, 9, Mode.INFER) == pytest.approx(feed(expected, 9, Mode.INFER), rel=1e-4)
    assert_close(values(device), values(expected))
    assert not any(g.any() for g in gradients(device).values())


def test_gradients_are_complete_whenever_they_are_read(load: Loader) -> None:
    device, expected = both(load, UpdateRule())
    for seed in range(3):
        feed(device, seed)
        feed(expected, seed)
        assert_close(gradients(device), gradients(expected))
        assert_close(gradients(device), gradients(expected))
    for each in (device, expected):
        each.update()
    assert_close(values(device), values(expected))


def test_what_the_host_writes_is_folded_anew(load: Loader) -> None:
    device, expected = both(load, UpdateRule())
    for each in (device, expected):
        feed(each, 0)
        for parameters in each.parameters().values():
            parameters.publish({name: 2 * v for name, v in parameters.values.items()})
    assert feed(device, 1) == pytest.approx(feed(expected, 1), rel=1e-4)
    assert_close(gradients(device), gradients(expected))
