"""What is written for peers is what they read."""

from __future__ import annotations

import numpy as np

from amphw.bench.export import export_instances, export_parameters
from amphw.host.config import resolve
from amphw.host.run_model import chosen_instances
from amphw.ir.instance import Instance
from amphw.models import get_model
from benchmarks.peers.stored import StoredInstances, stored_parameters


def test_instances_come_back_with_their_shapes(tmp_path) -> None:
    rng = np.random.default_rng(0)
    instances = [
        Instance(
            {"n": n, "size": 2 * n},
            {"flat": rng.integers(0, 9, n), "grid": rng.integers(0, 9, (2, n)).astype(np.int32)},
            {"x": rng.standard_normal((n, 3)).astype(np.float32)},
        )
        for n in (4, 0, 1, 7)
    ]
    export_instances(tmp_path / "i.npz", instances, lambda i: i.attrs["size"])
    stored = StoredInstances(tmp_path / "i.npz")
    assert len(stored) == 4
    assert stored.size.tolist() == [8, 0, 2, 14]
    for i, flat, grid, x in zip(
        instances, stored.table("flat"), stored.table("grid"), stored.data("x"), strict=True
    ):
        assert flat.dtype == grid.dtype == np.int64 and x.dtype == np.float32
        np.testing.assert_array_equal(flat, i.tables["flat"])
        np.testing.assert_array_equal(grid, i.tables["grid"])
        np.testing.assert_array_equal(x, i.data["x"])


def test_parameters_are_those_that_a_device_begins_with(tmp_path) -> None:
    from amphw.ir.device import DeviceOptions
    from amphw.ir.reference import ReferenceDevice
    from amphw.ir.update import UpdateRule

    model = get_model("list-reduction")
    graph = model.graph(model.config(hidden=5))
    export_parameters(tmp_path / "p.npz", graph, seed=3)
    device = ReferenceDevice()
    device.load(graph, {"*": UpdateRule()}, DeviceOptions(seed=3))
    found = stored_parameters(tmp_path / "p.npz")
    assert found.keys() == device.parameters().keys()
    for node, p in device.parameters().items():
        for name, w in p.values.items():
            np.testing.assert_array_equal(found[node][name], w)


def test_the_chosen_instances_are_numbered_and_the_same_every_time() -> None:
    model = get_model("list-reduction")
    cfg = resolve(model.config, model.defaults, None, ["batch=7", "train_instances=50"])
    one, two = chosen_instances(model, cfg, 3), chosen_instances(model, cfg, 1000)
    assert [i.number for i in one] == [0, 1, 2] and len(two) >= 8
    for a, b in zip(one, two, strict=False):
        np.testing.assert_array_equal(a.tables["tokens"], b.tables["tokens"])
