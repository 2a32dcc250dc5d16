"""Layers: programs that own parameters. A layer of one's own is a function of values and the shapes it needs.

>>> from amphw import frontend as fe
>>> gate = fe.Layer(lambda p, x, h: fe.sigmoid(x @ p.W) * h, lambda x, h: {"W": (x, h)})

A layer may be used any number of times; its parameters are one. The functions inside are those of
`amphw.frontend.functions`, on the values of one row. A layer may have several functions of its parameters:

>>> tied = fe.Layer(shapes={"W": (8, 3)}, encode=lambda p, x: x @ p.W, decode=lambda p, h: h @ p.W.T)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Never

import numpy as np

from amphw.frontend.integer import Integer
from amphw.frontend.layer_functions import (
    add_functions,
    functions_of,
    no_attribute,
    no_call,
    no_operand,
    no_settings,
    start,
)
from amphw.frontend.masks import dropout, rows_of
from amphw.frontend.source import FrontendError
from amphw.frontend.spec import items_of
from amphw.frontend.tensor import Constant, Tensor, align, expressions, filled, ports, traced
from amphw.frontend.trace import Call, current
from amphw.ir import functions as f
from amphw.ir.expr import Expr
from amphw.ir.nodes import NPT, PPT
from amphw.ir.program import Params, ParamSpec, Program, Value

Shapes = Mapping[str, tuple[int, ...] | ParamSpec]


class Layer:
    """`function(p, *values, *integers)` with the parameters that `shapes(*widths)` says.

    function: its values have as many numbers a row as the tensors it is called with; an Integer comes as a
    state expression. shapes: from these widths to name -> shape or `parameter(...)`. It may be a dict.
    functions: further functions of the same parameters, by name, each a method of the layer then; shapes are
    a dict where there are any.
    """

    def __init__(
        self,
        function: Callable[..., Value | list[Value]] | None = None,
        shapes: Callable[..., Shapes] | Shapes | None = None,
        *,
        name: str | None = None,
        **functions: Callable[..., Value | list[Value]],
    ) -> None:
        self.name, self._function, self._shapes = name, function, shapes
        add_functions(self, functions, shapes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)  # Python itself asks for these
        shapes = self.__dict__.get("_shapes")
        no_attribute(self, name, shapes if isinstance(shapes, Mapping) else {})

    def shapes(self, *widths: int) -> Shapes:
        """Parameters by name, for operands of these widths."""
        return self._shapes(*widths) if callable(self._shapes) else self._shapes or {}

    def function(self, p: Params, *operands: Any) -> Value | list[Value]:
        """What it computes, on the values of a row."""
        if self._function is None:
            raise no_call(self)
        return self._function(p, *operands)

    def __call__(self, *operands: Any) -> Any:
        self.check(operands)
        return self.apply("", self.function, *operands)

    def check(self, operands: Sequence[Any]) -> None:
        """FrontendError where these cannot be what it is called with."""

    def apply(self, label: str, function: Callable[..., Any], *operands: Any) -> Any:
        """Call one of the layer's functions, which is known by this label; "" is that of a call itself."""
        given = [items_of(x) for x in operands]
        for x in given:
            if not isinstance(x, Tensor | Integer):
                raise FrontendError(
                    f"a layer is called with values and Integers of the model, got {x!r}{no_operand(x)}"
                )
        tensors = [x for x in given if isinstance(x, Tensor)]
        ints = [x for x in given if isinstance(x, Integer)]
        aligned, context, rows = align(tensors, ints)
        # A shared layer is one program, whether an operand is constant in one of its uses or not. A trigger
        # stays where there is no tensor to set the node off.
        aligned = [filled(x, context, rows) if isinstance(x, Constant) else x for x in aligned]
        aligned = aligned[: len(tensors) or 1]
        tensors = aligned[: len(tensors)]
        trace = current()
        name = trace.layer_name(self)
        with rows_of(name, context, rows, use=len(trace.net.calls.get(self, ()))):
            given = expressions(ints, rows)
            try:
                if label:
                    params = self.named(*(x.width for x in tensors))
                    program = traced(function, tensors, aligned, given, params, all_read=False)
                else:
                    program = self.program(tensors, aligned, given)
            except (TypeError, AttributeError) as error:
                # Any other mistake in the layer is its own.
                theirs = any(f"'{type(e).__name__}'" in str(error) for e in given)
                if not theirs or isinstance(error, FrontendError):
                    raise
                raise FrontendError(
                    f"{type(self).__name__} cannot compute with the Integer {ints[0]!r} ({error}); an "
                    "Embedding makes a value of it, `number(i)` a single number"
                ) from error
        node: PPT | NPT
        if program.params:
            calls = trace.net.calls.setdefault(self, [])
            node = PPT(f"{name}@{len(calls)}", program)
            calls.append(Call(node.name, context, rows, function=label))
        else:
            node = NPT(trace.name(name) if name in trace.net.nodes else name, program)
        trace.emit(node, ports(program, aligned))
        made = [
            Tensor((node.name, out), t.width, context, rows)
            for out, t in zip(node.outs, program.outputs_types, strict=True)
        ]
        return made[0] if len(made) == 1 else made

    def program(self, tensors: list[Tensor], aligned: list[Tensor], exprs: list[Expr]) -> Program:
        alone = not functions_of(self)
        params = self.named(*(x.width for x in tensors))
        return traced(self.function, tensors, aligned, exprs, params, all_read=alone)

    def named(self, *widths: int) -> dict[str, tuple[int, ...] | ParamSpec]:
        """The parameters, those of `parameter` with their names."""
        shapes = self.shapes(*widths)
        if not shapes:
            raise FrontendError("a layer has parameters; without any, write the function alone")
        for name, spec in shapes.items():
            if isinstance(spec, ParamSpec):
                current().own(self, name, spec)
        return {n: replace(s, name=n) if isinstance(s, ParamSpec) else s for n, s in shapes.items()}


def parameter(shape: tuple[int, ...], init: str | np.ndarray = "glorot") -> ParamSpec:
    """A parameter and how it starts: glorot, zeros, uniform:A, normal:S or identity; or its first values."""
    init = start(init)
    if isinstance(init, str):
        return ParamSpec("", shape, init)
    if init.shape != shape:
        raise FrontendError(f"a parameter of shape {shape} cannot start at values of shape {init.shape}")
    return ParamSpec.given("", init)


class Linear(Layer):
    """x [inputs] -> x W + b [outputs]. W [inputs, outputs] starts as Glorot's uniform, b at 0."""

    def __init__(
        self,
        outputs: int,
        *,
        bias: bool = True,
        init: str | np.ndarray = "glorot",
        name: str | None = None,
        **settings: Never,
    ):
        no_settings(self, settings)
        super().__init__(name=name)
        self.outputs, self.bias, self.init = positive(self, outputs), bias, start(init)

    def shapes(self, *widths: int) -> Shapes:
        weight = {"W": parameter((sum(widths), self.outputs), self.init)}
        return weight | {"b": parameter((self.outputs,), "zeros")} if self.bias else weight

    def function(self, p: Params, *operands: Any) -> Value:
        """Of several operands it takes their numbers side by side."""
        return f.linear(f.concat(*operands), p.W, p.b if self.bias else None)


class LayerNorm(Layer):
    """Each row less its mean, over its standard deviation, times a scale, plus a shift, as PyTorch's."""

    def __init__(self, *, eps: float = 1e-5, name: str | None = None):
        super().__init__(name=name)
        self.eps = eps

    def shapes(self, *widths: int) -> Shapes:
        width = _one(self, widths)
        return {
            "scale": parameter((width,), np.ones(width, np.float32)),
            "shift": parameter((width,), "zeros"),
        }

    def function(self, p: Params, *operands: Any) -> Value:
        (x,) = operands
        return f.layer_norm(x, self.eps) * f.row_param(p.scale) + f.row_param(p.shift)


class RMSNorm(Layer):
    """Each row over the root of its mean square, times a scale (Zhang and Sennrich, NeurIPS 2019)."""

    def __init__(self, *, eps: float = 1e-6, name: str | None = None):
        super().__init__(name=name)
        self.eps = eps

    def shapes(self, *widths: int) -> Shapes:
        width = _one(self, widths)
        return {"scale": parameter((width,), np.ones(width, np.float32))}

    def function(self, p: Params, *operands: Any) -> Value:
        (x,) = operands
        return f.rms_norm(x, self.eps) * f.row_param(p.scale)


class _Recurrent(Layer):
    """A layer of a state and what comes in."""

    def check(self, operands: Sequence[Any]) -> None:
        alone = [getattr(items_of(x), "width", None) for x in operands] == [getattr(self, "width", 0)]
        # An RNN may run on its state alone, for a number of turns; the others have weights for what comes in.
        if len(operands) < 2 and not (alone and isinstance(self, RNN)):
            state = "constant(2 * width)" if isinstance(self, LSTM) else "constant(width)"
            raise FrontendError(
                f"{type(self).__name__} is called with a state and what comes in: cell(h, x). "
                f"`fold(cell, {state}, x)` goes along the positions of x and gives the last state, "
                f"`scan(cell.step, {state}, x)` all of them too"
            )


class RNN(_Recurrent):
    """(h [width], x) -> tanh([x, h] W + b), or relu."""

    def __init__(self, width: int, *, activation: Callable[[Any], Any] = f.tanh, name: str | None = None):
        super().__init__(name=name)
        self.width, self.activation = positive(self, width), activation

    def shapes(self, *widths: int) -> Shapes:
        return {"W": (sum(widths), self.width), "b": parameter((self.width,), "zeros")}

    def function(self, p: Params, *operands: Any) -> Value:
        h, *x = operands
        result: Value = self.activation(f.linear(f.concat(*x, h), p.W, p.b))
        return result

    def step(self, h: Tensor, *x: Any) -> tuple[Tensor, Tensor]:
        """(h, x) -> (h', h'): the body of a `scan`, which gives the h of all positions."""
        after = self(h, *x)
        return after, after


class GRU(_Recurrent):
    """(h [width], x) -> h'. Cho et al. 2014 with the reset gate behind the product, as PyTorch's GRUCell.

    Wi [x, 3 width], Wh [width, 3 width] and their biases hold the gates r, z, n in this order.
    """

    def __init__(self, width: int, *, name: str | None = None):
        super().__init__(name=name)
        self.width = positive(self, width)

    def shapes(self, *widths: int) -> Shapes:
        _same(self, widths[0], self.width)
        wide = 3 * self.width
        return {
            "Wi": (sum(widths[1:]), wide),
            "bi": parameter((wide,), "zeros"),
            "Wh": (self.width, wide),
            "bh": parameter((wide,), "zeros"),
        }

    def function(self, p: Params, *operands: Any) -> Value:
        h, *x = operands
        return f.gru(f.linear(f.concat(*x), p.Wi, p.bi), f.linear(h, p.Wh, p.bh), h)

    def step(self, h: Tensor, *x: Any) -> tuple[Tensor, Tensor]:
        """(h, x) -> (h', h'): the body of a `scan`, which gives the h of all positions."""
        after = self(h, *x)
        return after, after


class LSTM(_Recurrent):
    """(state [2 width], x) -> state', where a state is h and c side by side; `lstm.h(state)` is h.

    W [x + width, 4 width] holds the gates i, f, o and the candidate u in this order; the forget gate's bias
    starts at 0. Hochreiter and Schmidhuber 1997, with a forget gate.
    """

    def __init__(self, width: int, *, name: str | None = None):
        super().__init__(name=name)
        self.width = positive(self, width)

    def shapes(self, *widths: int) -> Shapes:
        _same(self, widths[0], 2 * self.width)
        return {
            "W": (sum(widths[1:]) + self.width, 4 * self.width),
            "b": parameter((4 * self.width,), "zeros"),
        }

    def function(self, p: Params, *operands: Any) -> list[Value]:
        state, *x = operands
        h, c = f.split(state, 2)
        return _state(*f.lstm(f.linear(f.concat(*x, h), p.W, p.b), c))

    def __call__(self, *operands: Any) -> Any:
        return super().__call__(*operands)[0]

    def step(self, state: Tensor, *x: Any) -> tuple[Tensor, Tensor]:
        """(state, x) -> (state', h): the body of a `scan`, which gives the h of all positions."""
        after, h = super().__call__(state, *x)
        return after, h

    def h(self, state: Tensor) -> Tensor:
        """h of a state."""
        return state[: self.width]


class TreeLSTMLeaf(Layer):
    """x -> (state [2 width], h [width]) of a leaf: the Tree-LSTM of Tai et al. (ACL 2015, 3.2).

    dropout: share left out of the candidate u, which alone is taken into the state, so that what the state
    holds is not forgotten by it: recurrent dropout (Semeniuta et al., COLING 2016).
    """

    def __init__(self, width: int, *, dropout: float = 0.0, name: str | None = None):
        super().__init__(name=name)
        self.width, self.dropout = positive(self, width), dropout

    def shapes(self, *widths: int) -> Shapes:
        return {"W": (sum(widths), 3 * self.width), "b": parameter((3 * self.width,), "zeros")}

    def function(self, p: Params, *operands: Any) -> list[Value]:
        z = f.linear(f.concat(*operands), p.W, p.b)
        i, o = f.split(f.sigmoid(f.columns(z, 0, 2 * self.width)), 2)
        c = i * dropout(f.tanh(f.columns(z, 2 * self.width, self.width)), self.dropout)
        return _state(o * f.tanh(c), c)


class TreeLSTMBranch(Layer):
    """(left state, right state) -> (state [2 width], h [width]), with a forget gate for each child.

    dropout: as of `TreeLSTMLeaf`.
    """

    def __init__(self, width: int, *, dropout: float = 0.0, name: str | None = None):
        super().__init__(name=name)
        self.width, self.dropout = positive(self, width), dropout

    def shapes(self, *widths: int) -> Shapes:
        for width in widths:
            _same(self, width, 2 * self.width)
        return {"W": (2 * self.width, 5 * self.width), "b": parameter((5 * self.width,), "zeros")}

    def function(self, p: Params, *operands: Any) -> list[Value]:
        (h_left, c_left), (h_right, c_right) = (f.split(x, 2) for x in operands)
        z = f.linear(f.concat(h_left, h_right), p.W, p.b)
        i, o, f_left, f_right = f.split(f.sigmoid(f.columns(z, 0, 4 * self.width)), 4)
        u = dropout(f.tanh(f.columns(z, 4 * self.width, self.width)), self.dropout)
        c = i * u + f_left * c_left + f_right * c_right
        return _state(o * f.tanh(c), c)


def _state(h: Value, c: Value) -> list[Value]:
    return [f.concat(h, c), h]


def positive(layer: Layer, width: object) -> int:
    if not isinstance(width, int) or width < 1:
        raise FrontendError(f"{type(layer).__name__} has a width of 1 or more, got {width!r}")
    return width


def _one(layer: Layer, widths: Sequence[int]) -> int:
    """The width of a layer's only operand."""
    if len(widths) != 1:
        raise FrontendError(
            f"{type(layer).__name__} is of one value, got {len(widths)}; `concat` joins several"
        )
    return widths[0]


def _same(layer: Layer, got: int, wanted: int) -> None:
    if got != wanted:
        raise FrontendError(
            f"{type(layer).__name__} takes a state of width {wanted} as its first operand, got {got}"
        )
