"""A piece of a module as a layer: what a function computes of it in place of its own forward function."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.frontend.saved import compiled_from_json, compiled_to_json
from tests.frontend.modules import nn, torch

SPEC = fe.Record(x=fe.Floats(4), label=fe.Int(4))


class Mixer(nn.Module):  # type: ignore[misc, name-defined]
    """Mixes rows, so that it is no layer as a whole. Its weights are of shapes that rows do not have."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.randn(3, 4, 4)), nn.Parameter(torch.randn(1, 2, 2))
        self.inner, self.unread = nn.Linear(4, 4), nn.Linear(2, 2)
        self.register_buffer("share", torch.tensor(0.5))
        self.register_buffer("table", torch.randn(2, 2))

    def forward(self, x: Any) -> Any:
        return x.cumsum(0) @ self.weight[0]


def piece(m: Any, x: Any, factor: float = 2.0) -> Any:
    return torch.tanh(m.inner(x @ m.weight[0] + x @ m.weight[2].T)) * m.scale.view(-1) * m.share * factor


def compiled(m: Any, forward: Any = piece) -> fe.Compiled:
    layer = fe.from_torch(m, forward)
    return fe.compile(lambda x: fe.classify(layer(x.x), x.label), SPEC)


def parameters(c: fe.Compiled) -> dict[str, tuple[int, ...]]:
    return {p.name: p.shape for p in c.graph.nodes["layer"].params}


def made() -> Any:
    torch.manual_seed(2)
    return Mixer()


def test_its_gradients_are_autograds_and_go_back_into_the_module() -> None:
    m, x = made(), {"x": np.arange(4) / 4, "label": 1}
    c = compiled(m)
    restored = compiled_from_json(json.loads(json.dumps(compiled_to_json(c))))
    logits = piece(m, torch.tensor(x["x"], dtype=torch.float32)[None])
    nn.functional.cross_entropy(logits, torch.tensor([1])).backward()
    for each in (c, restored):
        (found,) = each.to_torch(each.gradients(x)).values()
        assert list(found) == ["weight", "scale", "share", "inner.weight", "inner.bias"], "what it reads"
        for name in ("scale", "inner.weight", "inner.bias"):
            torch.testing.assert_close(found[name].float(), m.get_parameter(name).grad)
        for k in (0, 2):
            torch.testing.assert_close(found["weight"][k].float(), m.weight.grad[k])
        for name, tensor in each.to_torch(each.parameters())["layer"].items():
            assert torch.equal(tensor.float(), m.state_dict()[name])


def test_what_is_stored_is_what_is_read() -> None:
    assert parameters(compiled(made())) == {
        "weight_0": (4, 4),
        "weight_2": (4, 4),
        "inner_weight": (4, 4),
        "inner_bias": (4,),
        "scale": (4,),
    }


def test_a_part_has_no_name_of_another_parameter() -> None:
    m = made()
    m.register_parameter("weight_2", nn.Parameter(torch.randn(4)))
    found = parameters(compiled(m, lambda m, x: x @ m.weight[2] + m.weight_2))
    assert found == {"weight_2_": (4, 4), "weight_2": (4,)}


@pytest.mark.parametrize(
    ("forward", "text"),
    [
        (lambda m, x: m(x), r"Tensor\.cumsum in '.*' has no counterpart here$"),
        (lambda m, x: x @ m.weight[3], r"the parameter 'weight' has 3 parts, and none is number 3"),
        (lambda m, x: x @ m.weight[0][1], r"the parameter 'weight_0' of shape \(4, 4\) is not taken apart"),
        (
            lambda m, x: x @ m.inner.weight + m.inner.weight[0],
            r"'inner_weight' is used as a whole and in",
        ),
        (lambda m, x: m.inner.weight[0] + m.inner(x), r"'inner_weight' is used as a whole and in"),
        (lambda m, x: x + m.scale, r"the parameter 'scale' of shape \(1, 2, 2\) is no row of numbers"),
        (lambda m, x: x.to(torch.float64), r"Tensor\.to: dtype torch\.float64; values are float32"),
        (
            lambda m, x: x * m.missing,
            "the module cannot be traced: 'Mixer' object has no attribute 'missing'",
        ),
        (
            lambda m: m.scale,
            "forward is a function of the module and of its operands, .*; got <func",
        ),
        (
            "inner",
            "forward is a function of the module and of its operands, .*; got 'inner'$",
        ),
    ],
)
def test_what_cannot_be_a_layer_is_refused(forward: Any, text: str) -> None:
    with pytest.raises(fe.FrontendError) as caught:
        compiled(made(), forward)
    assert re.search(text, str(caught.value)), caught.value
