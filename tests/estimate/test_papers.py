"""The papers' calculations, with the numbers that the papers print."""

from __future__ import annotations

import pytest

from amphw.estimate.papers import GGNN_PRINTED, GatedGraph, case_of, gated_graph
from amphw.ir.errors import AmphwError


def test_ggnn_as_in_appendix_c() -> None:
    """AMPNet, arXiv 1705.09786, appendix C: H = 200, N = E = 30, C = 4, 1 TFLOPS."""
    found = GatedGraph().figures(1e12)
    assert found["forward_operations"] == 2 * max(2 * 30 * 200**2, 30 * 200**2 / 4) == 4.8e6
    assert found["backward_operations"] == 14.4e6
    assert found["samples_per_s"] == pytest.approx(6510.4, abs=0.1)
    assert found["bits_per_s"] == pytest.approx(1.25e9)
    assert found["memory_bytes"] == 1_280_000
    assert found["devices"] == 7


def test_the_paper_prints_the_same_with_two_digits() -> None:
    """1.2 MB are of 1,024 * 1,024 bytes."""
    found = GatedGraph().figures(1e12)
    assert GGNN_PRINTED["samples_per_s"] == float(f"{found['samples_per_s']:.1e}")
    assert GGNN_PRINTED["bits_per_s"] == pytest.approx(found["bits_per_s"], rel=0.05)
    assert GGNN_PRINTED["memory_bytes"] / 1e6 == round(found["memory_bytes"] / 2**20, 1)


def test_many_edges_of_few_types_limit() -> None:
    """E H^2 / C above 2 N H^2: the layer of a type of edge is what takes longest."""
    found = GatedGraph(hidden=10, nodes=1, edges=100, types=2).figures(1e9)
    assert found["forward_operations"] == 2 * 100 * 100 / 2
    assert found["bits_per_s"] == pytest.approx(32 * found["samples_per_s"] * 100 * 10)


def test_the_report_says_what_the_formula_says() -> None:
    case = GatedGraph()
    outcome = gated_graph("ggnn", case, 1e12, printed=True)
    assert outcome.case is not None and outcome.case.printed == GGNN_PRINTED
    assert outcome.throughput == pytest.approx(outcome.case.figures["samples_per_s"])
    assert [len(outcome.devices), len(outcome.per_node)] == [7, 7]
    assert [edge.bits_per_s for edge in outcome.per_edge] == [pytest.approx(1.25e9)]
    assert max(node.memory.parameters for node in outcome.per_node) == 1_280_000
    assert outcome.bottleneck.name == "device 4" and outcome.devices[4].nodes == ["update_0"]
    assert {each.origin for each in outcome.origin.values()} == {"assumed"}


def test_twice_the_operations_a_second_are_twice_the_samples() -> None:
    one, two = (gated_graph("ggnn", GatedGraph(), flops).throughput for flops in (1e12, 2e12))
    assert two == pytest.approx(2 * one)


@pytest.mark.parametrize("model, name", [("mnist", "paper"), ("ggnn", "other")])
def test_other_cases_are_refused(model: str, name: str) -> None:
    with pytest.raises(AmphwError, match=f"no case '{name}' of the model {model}; there are: ggnn: paper"):
        case_of(model, name)
