"""Random choices: `dropout` of a constant is drawn for each turn of the loops around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.cpu_runtime import CpuDevice
from amphw.ir.device import Device, DeviceOptions, Mode
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule

WORDS, INSTANCES = 40, 12


def coin() -> Any:
    return fe.dropout(fe.constant(1, 1.0), 0.5)


def kept(v: Any) -> Any:
    """v with probability 1/2, else 0: the recipe of the manual."""
    return fe.cond(coin(), lambda v: v * 1.0, lambda v: v * 0.0, v)


def _in_a_scan(x: Any) -> Any:
    return fe.reduce(fe.scan(lambda h, i: (h, kept(i)), fe.constant(1), x.xs)[1])


def _in_a_fold(x: Any) -> Any:
    return fe.fold(lambda h, i: h + i * coin() * 0.5, fe.constant(1), x.xs)


def _in_a_loop_for_each_word(x: Any) -> Any:
    words = fe.ungroup(x.xs.item)
    once = fe.while_loop(lambda h: 5.0 - h, lambda h: h + 6.0 + coin() * 0.5, words * 0.0, most=1)
    return fe.reduce(once - 6.0)


EACH: dict[str, Callable[[Any], Any]] = {
    "scan": _in_a_scan,
    "fold": _in_a_fold,
    "while_loop for each word": _in_a_loop_for_each_word,
}


def drawn(model: Callable[[Any], Any], device: Device, mode: Mode = Mode.TRAIN) -> list[float]:
    """How many of the words each instance keeps."""
    compiled = fe.compile(
        lambda x: fe.loss(model(x)), fe.Record(xs=fe.Sequence(fe.Floats(1), most=WORDS)), "words"
    )
    device.load(compiled.graph, {"*": UpdateRule()}, DeviceOptions(updates="off", seed=1))
    counts = []
    try:
        for k in range(INSTANCES):
            device.submit(0, 0, compiled.encode({"xs": np.ones((WORDS, 1))}, k), mode)
            (report,) = device.drain()
            counts.append(report.sums["loss"]["loss"])
    finally:
        device.close()
    return counts


@pytest.mark.parametrize("name", EACH)
def test_a_constant_is_drawn_for_each_turn(name: str) -> None:
    counts = drawn(EACH[name], ReferenceDevice(dtype=np.float64))
    assert all(8 <= n <= 32 for n in counts) and len(set(counts)) > 3
    assert drawn(EACH[name], CpuDevice()) == counts
    (always,) = set(drawn(EACH[name], ReferenceDevice(), Mode.INFER))
    assert always == (WORDS if name == "scan" else WORDS / 2)  # there is nothing scaled in inference


def test_outside_of_loops_a_constant_is_drawn_once_for_an_instance() -> None:
    counts = drawn(lambda x: fe.reduce(kept(x.xs.item)), ReferenceDevice(dtype=np.float64))
    assert set(counts) == {0.0, float(WORDS)}


def test_a_constant_in_the_layout_of_a_value_is_drawn_for_each_of_its_positions() -> None:
    counts = drawn(
        lambda x: fe.reduce(x.xs * 0.5 * fe.dropout(x.xs * 0.0 + 1.0, 0.5)), ReferenceDevice(dtype=np.float64)
    )
    assert all(8 <= n <= 32 for n in counts) and len(set(counts)) > 3


def test_a_layer_has_other_masks_at_each_use_and_each_turn() -> None:
    """Also where an Integer is an operand, which may be what tells the rows apart."""
    drop = fe.Layer(
        lambda p, v, i: fe.dropout(v * p.g, 0.5) + fe.column(v, i) * 0.0,
        {"g": fe.parameter((24,), np.ones(24, np.float32))},
    )

    def model(x: Any) -> None:
        ones = x.n_ones
        _, turns = fe.scan(lambda h, i: (h, drop(ones, i)), fe.constant(1), x.places)
        rows = fe.group(turns, x.places)
        uses = {f"use{k}": drop(ones, x.one) for k in range(3)}
        at = {f"turn{k}": fe.pick(rows, k) for k in range(3)}
        fe.loss(fe.sum_columns(ones), **uses, **at)

    spec = fe.Record(places=fe.Sequence(fe.Int(5), most=3), one=fe.Int(5), n_ones=fe.Floats(24))
    compiled = fe.compile(model, spec, "masks")
    found = []
    for device in (ReferenceDevice(), CpuDevice()):
        device.load(compiled.graph, {"*": UpdateRule()}, DeviceOptions(updates="off", seed=1))
        plain = {"places": [0, 1, 2], "one": 0, "n_ones": np.ones(24)}
        device.submit(0, 0, compiled.encode(plain, 7), Mode.TRAIN)
        (report,) = device.drain()
        found.append(report.sums["loss"])
        device.close()
    assert found[0] == found[1]
    assert len({found[0][name] for name in found[0] if name != "loss"}) > 3
