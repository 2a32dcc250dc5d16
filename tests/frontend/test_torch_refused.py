"""Modules of PyTorch that have no counterpart are refused, with the operation and its line in `forward`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from amphw import frontend as fe
from tests.frontend.modules import F, module, nn, torch


def _condition(self: Any, x: Any) -> Any:
    if x.sum() > 0:
        return x
    return -x


def _aliased(self: Any, x: Any) -> Any:
    y = x * 2
    z = y
    y += 1
    return y + z


def _view(self: Any, x: Any) -> Any:
    y = x[:, :2]
    y *= 2
    return torch.cat([x, y], 1)


def _frozen() -> Any:
    return nn.Linear(4, 4).requires_grad_(False)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "module": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Mish())),
        r"torch\.nn\.Mish at '1\.0' has no counterpart here$",
    ),
    "loop": (
        lambda: module(lambda self, x: self.lstm(x), lstm=nn.LSTM(4, 4)),
        r"HERE: torch\.nn\.LSTM at 'lstm' has no counterpart here; loops belong to the model: use "
        r"LSTMCell in fe\.fold$",
    ),
    "function": (
        lambda: nn.Sequential(module(lambda self, x: torch.erf(x))),
        r"HERE: torch\.erf in '0' has no counterpart here$",
    ),
    "method": (lambda: module(lambda self, x: x.cumsum(0)), "HERE: Tensor.cumsum has no counterpart here$"),
    "control-flow": (
        lambda: module(_condition),
        r"HERE: the module cannot be traced: symbolically traced variables cannot be used as inputs to "
        r"control flow; decisions and loops belong to the model: fe\.cond, fe\.scan$",
    ),
    "loop-over-rows": (
        lambda: module(lambda self, x: torch.cat(list(x), 1)),
        "HERE: the module cannot be traced: Proxy object cannot be iterated; decisions and loops belong "
        r"to the model: fe\.cond, fe\.scan$",
    ),
    "rows-together": (
        lambda: module(lambda self, x: torch.cat([x, x], 0)),
        r"HERE: torch\.cat: along dimension 0; a value is \[rows, width\], and only its columns, "
        "-1, are together",
    ),
    "reshaped": (
        lambda: module(lambda self, x: x.view(x.size(0), 2, 2)),
        r"HERE: Tensor\.view: \[rows, 4\] cannot become \[rows, 2, 2\]; rows stay rows, and columns columns",
    ),
    "argument": (
        lambda: module(lambda self, x: torch.div(x, 2, rounding_mode="floor")),
        r"HERE: torch\.div: called in a way that is not known here: got an unexpected keyword argument "
        "'rounding_mode'",
    ),
    "widths": (
        lambda: module(lambda self, x: self.inner(x), inner=nn.Linear(5, 3)),
        r"HERE: torch\.nn\.Linear at 'inner': matmul: the operand has width 4, parameter 'inner_weight' has "
        r"5 rows \(the layer is used at .*test_torch_refused\.py:\d+\)$",
    ),
    "both-ways": (
        lambda: module(lambda self, x: x @ self.W @ self.W.T, W=nn.Parameter(torch.eye(4))),
        r"HERE: operator\.matmul: the parameter 'W' is used as it is and transposed; that takes two",
    ),
    "buffer": (
        lambda: module(lambda self, x: x * self.k, k=nn.Buffer(torch.ones(4))),
        "HERE: the tensor 'k' is no parameter, and more than a number; make it one$",
    ),
    "in-place": (
        lambda: module(lambda self, x: F.relu(x, inplace=True) + x),
        r"HERE: torch\.nn\.functional\.relu works in place on what is read elsewhere; use a new value$",
    ),
    "in-place-view": (
        lambda: module(lambda self, x: x[:, :2].relu_()),
        r"HERE: Tensor\.relu_ works in place on what is read elsewhere; use a new value$",
    ),
    "in-place-operator": (
        lambda: module(_aliased),
        r"HERE: operator\.iadd works in place on what is read elsewhere; use a new value$",
    ),
    "in-place-operator-on-a-view": (
        lambda: module(_view),
        r"HERE: operator\.imul works in place on what is read elsewhere; use a new value$",
    ),
    "frozen": (_frozen, r"the parameter 'weight' is frozen, and a layer trains all that it has; call "),
    "row-picked": (
        lambda: module(lambda self, x: x[0]),
        r"HERE: operator\.getitem: a value is read by columns",
    ),
    "chunk-that-is-not-there": (
        lambda: module(lambda self, x: x.chunk(3, -1)[2]),
        r"HERE: operator\.getitem: there are 2, and none is number 2 \(the layer is used at",
    ),
    "single-column": (
        lambda: module(lambda self, x: x[:, 0]),
        r"HERE: operator\.getitem: .* stay a dimension",
    ),
    "no-value": (lambda: module(lambda self, x: {"y": x}), "the result of the module: a value was expected"),
    "operands": (lambda: module(lambda self, x, y: x), r"the module takes the operands \(x, y\), got 1$"),
    "any-operands": (lambda: module(lambda self, *xs: xs[0]), "cannot be traced|forward takes"),
    "index": (
        lambda: nn.Embedding(4, 2),
        "the operand 'input' of the module is an Integer, the index of an em",
    ),
    "no-weights-yet": (
        lambda: nn.Linear(4, 4, device="meta"),
        "the parameter 'weight' has no values: Cannot copy out of meta tensor",
    ),
    "hooks": (lambda: _hooked(), "the module has hooks at '0', which a trace does not see$"),
}


def _hooked() -> Any:
    m = nn.Sequential(nn.Linear(4, 4))
    m[0].register_forward_hook(lambda m, x, y: y * 2)
    return m


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_counterpart_is_refused_with_its_place(name: str) -> None:
    make, text = REFUSED[name]
    m = make()

    def model(x: Any) -> None:
        fe.loss(fe.sum_columns(fe.from_torch(m)(x.x)))

    with pytest.raises(fe.FrontendError) as caught:
        fe.compile(model, fe.Record(x=fe.Floats(4)))
    assert re.search(text.replace("HERE", r"test_torch_refused\.py:\d+"), str(caught.value)), caught.value


def test_only_modules_are_taken() -> None:
    with pytest.raises(fe.FrontendError, match=r"from_torch takes a torch\.nn\.Module, got 3$"):
        fe.from_torch(3)


def test_an_embedding_is_as_large_as_its_index_may_be() -> None:
    tables = (nn.Embedding(4, 2), module(lambda self, i: F.embedding(i, self.W), W=(4, 2)))
    for table in tables:
        layer = fe.from_torch(table)

        def model(x: Any, layer: Any = layer) -> None:
            fe.loss(fe.sum_columns(layer(x.n)))

        fe.compile(model, fe.Record(n=fe.Int(4)))
        with pytest.raises(fe.FrontendError, match="an embedding of 4 rows is given an Integer of up to 8"):
            fe.compile(model, fe.Record(n=fe.Int(9)))
