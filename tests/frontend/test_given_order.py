"""What a model says of edges comes in the order in which the instance has them, whatever lies in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import amphw
from amphw import frontend as fe
from amphw.models.plain import PlainModel
from tests.library.parity import QUIET

GRAPH = {
    "edges": [(2, 0), (0, 1), (2, 1), (0, 2), (1, 0)],
    "v": [0, 1, 8],
    "w": [[k] for k in (1, 2, 3, 4, 5)],
}
OTHER = {"edges": [(1, 0), (0, 1)], "v": [3, 4], "w": [[6], [7]]}
SENT = [GRAPH["v"][source] * k for (source, _), k in zip(GRAPH["edges"], (1, 2, 3, 4, 5), strict=True)]


def spec(types: int = 1) -> fe.Graph:
    return fe.Graph({"v": fe.Int(9)}, {"w": fe.Floats(1)}, most_nodes=3, most_edges=9, types=types)


def typed(types: int) -> dict[str, Any]:
    return GRAPH | ({"type": [1, 1, 0, 0, 1]} if types > 1 else {})


def tell(g: Any) -> Any:
    return fe.send(fe.number(g.v), g) * g.w


@pytest.mark.parametrize("types", [1, 2])
def test_edges_of_a_graph(types: int) -> None:
    def model(x: Any) -> None:
        fe.report(w=x.g.w * 1.0)
        fe.report(sent=tell(x.g), grouped=fe.group(tell(x.g), x.g.edges))
        fe.loss(fe.sum_columns(fe.Linear(1, name="top")(fe.reduce(tell(x.g), over=x.g.edges))))

    given = {"g": typed(types)}
    run = amphw.train(model, [given] * 8, spec=fe.Record(g=spec(types)), **QUIET)
    for found in (
        run.predict([given])[0],
        {k: v[:, 0] for e in run.outputs(given).values() for k, v in e.items()},
    ):
        np.testing.assert_array_equal(found["w"], [1, 2, 3, 4, 5])
        np.testing.assert_array_equal(found["sent"], SENT)
        np.testing.assert_array_equal(found["grouped"], SENT)


def test_instances_of_a_model_are_told_in_their_order_too() -> None:
    """A model keeps what it has encoded, and gives copies of it."""

    @dataclass(frozen=True)
    class Config:
        pass

    class Echo(PlainModel[Config]):
        name, config, summary = "echo", Config, "tells edges"

        def write(self, cfg: Any) -> Any:
            def model(x: Any) -> None:
                fe.report(w=x.g.w * 1.0)
                fe.loss(fe.sum_columns(fe.Linear(1, name="top")(fe.reduce(tell(x.g), over=x.g.edges))))

            return model, fe.Record(g=spec())

        def data(self, cfg: Any, seed: int, part: str) -> Any:
            return [{"g": GRAPH}]

    model = Echo()
    for _ in range(2):
        assert model.training(Config(), 0, 0)[0].given["g_edges"].tolist() == [1, 3, 4, 0, 2]


@pytest.mark.parametrize("reverse", [False, True])
def test_edges_of_graphs_in_a_sequence(reverse: bool) -> None:
    def model(x: Any) -> None:
        _, sent = fe.scan(lambda c, g: (c, tell(g)), fe.constant(1), x.all, reverse=reverse)
        fe.report(sent=sent, w=x.all.item.w * 1.0)
        fe.loss(fe.sum_columns(fe.reduce(sent, over=x.all.item.edges)))

    compiled = fe.compile(model, fe.Record(all=fe.Sequence(spec(), most=4)))
    found = compiled.outputs({"all": [GRAPH, OTHER, GRAPH]})
    np.testing.assert_array_equal(found["w"]["w"][:, 0], [1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(found["sent"]["sent"][:, 0], [*SENT, 24, 21, *SENT])


def test_edges_beside_other_positions() -> None:
    def model(x: Any) -> None:
        fe.report(pairs=x.g.w * x.xs, of_edges=x.g.letters.item * x.g.w)
        fe.loss(fe.sum_columns(fe.reduce(x.xs * 1.0)))

    letters = fe.Sequence(fe.Floats(1), most=2, least=0)
    graph = fe.Graph({"v": fe.Int(9)}, {"w": fe.Floats(1), "letters": letters}, most_nodes=3, most_edges=9)
    with pytest.warns(fe.FrontendNote, match="is of every pair"):
        compiled = fe.compile(model, fe.Record(g=graph, xs=fe.Sequence(fe.Floats(1), most=3)))
    within = [[[1], [2]], [], [[3]], [[4]], []]
    found = compiled.outputs({"g": GRAPH | {"letters": within}, "xs": [[10], [20]]})
    expected = [w * x for w in (1, 2, 3, 4, 5) for x in (10, 20)]
    np.testing.assert_array_equal(found["pairs"]["pairs"][:, 0], expected)
    np.testing.assert_array_equal(found["of_edges"]["of_edges"][:, 0], [1, 2, 9, 16])
