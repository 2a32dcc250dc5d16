"""Parameters that start at given values: on every device, and through storage."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.host.null_device import NullDevice
from amphw.ir.device import DeviceOptions
from amphw.ir.errors import GraphError, ProgramError
from amphw.ir.graph import Graph
from amphw.ir.passes import replicate
from amphw.ir.program import ParamSpec
from amphw.ir.reference import ReferenceDevice
from amphw.ir.serialise import fingerprint, graph_from_json, graph_to_json
from amphw.ir.start import starting_at
from amphw.ir.update import UpdateRule
from tests.ir.graphs import sequence

TABLE = np.arange(15, dtype=np.float32).reshape(5, 3) / 7


def parameters(graph: Graph, device: Any) -> dict[str, np.ndarray]:
    device.load(graph, {"*": UpdateRule()}, DeviceOptions(1, 0, seed=4))
    try:
        return {f"{n}.{k}": v for n, p in device.parameters().items() for k, v in p.values.items()}
    finally:
        device.close()


@pytest.mark.parametrize("device", [ReferenceDevice, CpuDevice, NullDevice])
def test_a_device_starts_with_them_and_draws_the_others(device: Any) -> None:
    before = parameters(sequence(), device())
    after = parameters(starting_at(sequence(), {"embed": {"E": TABLE}}), device())
    np.testing.assert_array_equal(after["embed.E"], TABLE)
    np.testing.assert_array_equal(after["head.W"], before["head.W"])


def test_values_of_a_transposed_array_are_laid_out_as_all_others() -> None:
    values = ParamSpec.given("W", TABLE.T).initial(np.random.default_rng())
    assert values.flags.c_contiguous and not np.shares_memory(values, TABLE)


def test_copies_of_a_node_start_alike() -> None:
    graph = replicate(starting_at(sequence(), {"head": {"W": TABLE.T}}), "head", 2)
    found = parameters(graph, ReferenceDevice())
    np.testing.assert_array_equal(found["head_0.W"], TABLE.T)
    np.testing.assert_array_equal(found["head_1.W"], TABLE.T)


def test_the_graph_given_stays_as_it_was() -> None:
    graph, values = sequence(), TABLE.copy()
    made = starting_at(graph, {"embed": {"E": values}})
    values[:] = 9
    assert fingerprint(graph) == fingerprint(sequence())
    np.testing.assert_array_equal(parameters(made, ReferenceDevice())["embed.E"], TABLE)


def test_stored_and_read_back_they_are_the_same() -> None:
    graph = starting_at(sequence(), {"embed": {"E": TABLE}})
    data = json.loads(json.dumps(graph_to_json(graph)))
    back = graph_from_json(data)
    assert graph_to_json(back) == data
    assert "values" not in graph_to_json(sequence())
    np.testing.assert_array_equal(parameters(back, ReferenceDevice())["embed.E"], TABLE)


def test_a_checkpoint_fits_whatever_they_were() -> None:
    one, two = (starting_at(sequence(), {"embed": {"E": TABLE + k}}) for k in (0, 1))
    assert fingerprint(one) == fingerprint(two) != fingerprint(sequence())


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"lost": {"E": TABLE}},
            "node 'lost': values are given for its parameters, but there is no such node",
        ),
        ({"embed": {"W": TABLE}}, "node 'embed': values are given for 'W'; its parameters are: E"),
        ({"tokens": {"W": TABLE}}, "node 'tokens': values are given for 'W'; its parameters are: none"),
        (
            {"embed": {"E": TABLE.T}},
            "node 'embed': the values given for 'E' have shape (3, 5), it has (5, 3)",
        ),
    ],
)
def test_values_that_do_not_fit(values: Any, text: str) -> None:
    with pytest.raises(GraphError) as caught:
        starting_at(sequence(), values)
    assert str(caught.value) == text


@pytest.mark.parametrize("text", ["AAAA", "***"])
def test_damaged_values_name_their_node(text: str) -> None:
    data = graph_to_json(starting_at(sequence(), {"embed": {"E": TABLE}}))
    data["values"]["embed"]["E"] = text
    with pytest.raises(GraphError, match=r"^node 'embed': the stored graph is damaged: values of 'E': "):
        graph_from_json(data)


def test_values_that_were_lost_are_missed() -> None:
    data = graph_to_json(starting_at(sequence(), {"embed": {"E": TABLE}}))
    del data["values"]
    with pytest.raises(ProgramError) as caught:
        parameters(graph_from_json(data), ReferenceDevice())
    assert str(caught.value) == "parameter 'E' starts at given values, but there are none"
    assert ParamSpec.given("E", TABLE) == ParamSpec("E", (5, 3), "given")
