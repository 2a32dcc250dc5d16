"""What layers are called, wherever a model gets them from."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

from amphw import frontend as fe

TOKENS = fe.Record(tokens=fe.Sequence(fe.Int(5), most=4), label=fe.Int(3))
embed, cell, head = fe.Embedding(5, 4), fe.GRU(4), fe.Linear(3)
net = SimpleNamespace(cell=fe.GRU(4), sizes=[1, 2])
layers = ModuleType("layers")
layers.top = fe.Linear(3)  # type: ignore[attr-defined]


def nodes(model: Any, spec: fe.Spec = TOKENS) -> set[str]:
    return set(fe.compile(model, spec).parameters())


def test_variables_that_a_function_within_the_model_reads() -> None:
    def model(x: Any) -> None:
        def step(h: Any, token: Any) -> Any:
            return (lambda h, e: cell(h, e))(h, embed(token))

        fe.classify(head(fe.fold(step, fe.constant(4), x.tokens)), x.label)

    assert nodes(model) == {"embed", "cell", "head"}


def test_attributes_of_objects_and_of_modules() -> None:
    def model(x: Any) -> None:
        fe.classify(layers.top(fe.fold(net.cell, fe.constant(4), embed(x.tokens))), x.label)

    assert nodes(model) == {"embed", "net_cell", "top"}


def test_a_method_has_the_attributes_of_its_object() -> None:
    class Model:
        def __init__(self) -> None:
            self.read = fe.GRU(4)

        def model(self, x: Any) -> None:
            fe.classify(head(fe.fold(self.read, fe.constant(4), embed(x.tokens))), x.label)

    assert nodes(Model().model) == {"embed", "read", "head"}


loss = fe.Linear(3)
letters = [1, 2, 3]


class Unwilling:
    """Something that stands for something else, which is not there."""

    __dict__ = property(lambda self: 1 / 0)  # type: ignore[assignment]


unwilling = Unwilling()


def test_what_is_no_layer_is_left_alone() -> None:
    def model(x: Any) -> None:
        assert unwilling is not None and letters
        fe.classify(head(fe.fold(cell, fe.constant(4), embed(x.tokens))), x.label)

    compiled = fe.compile(model, TOKENS)
    assert set(compiled.parameters()) == {"embed", "cell", "head"}
    assert "loss" in compiled.graph.nodes, "a layer of that name is not read, but the attribute `fe.classify`"


def test_a_loss_keeps_its_name_beside_a_layer_of_that_name() -> None:
    aux = fe.Linear(3)

    def model(x: Any) -> None:
        h = fe.fold(cell, fe.constant(4), embed(x.tokens))
        fe.classify(head(h), x.label, name="aux")
        fe.classify(aux(h), x.label)

    assert {"aux", "aux_2", "loss"} <= fe.compile(model, TOKENS).graph.nodes.keys()


def test_other_nodes_leave_the_names_of_layers_to_them() -> None:
    top, side, add = fe.Linear(4), fe.Linear(4), fe.Linear(2)

    def model(x: Any) -> None:
        h = fe.fold_tree(top(x.x), lambda a, b: side(a + b), x)
        fe.loss(fe.sum_columns(add(fe.root(h, x) + 1.0)))

    assert nodes(model, fe.Tree({"x": fe.Floats(2)}, most=4)) == {"top", "side", "add"}
