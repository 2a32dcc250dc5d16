"""Primitives of programs as operators of ONNX: by name a function that writes them.

A primitive that is not here moves rows between messages or positions, as attention does, or is of backward
programs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from amphw.ir.primitives.images import Windows

if TYPE_CHECKING:
    from amphw.frontend.onnx_export import Steps

SPREADING = {"add", "sub", "mul", "div", "maximum", "equal"}
"""What makes a row of its operand as many as the other operand has."""

Write = Callable[["Steps", dict[str, Any], list[str], str, Sequence[int]], str]


def _plain(operator: str) -> Write:
    return lambda s, at, a, name, _: s.emit(operator, a, name)


def _numbered(operator: str) -> Write:
    return lambda s, at, a, name, _: s.emit(operator, [a[0], s.number(name, at["factor"])], name)


def _reduced(operator: str) -> Write:
    return lambda s, at, a, name, _: s.emit(operator, [a[0], s.whole(name, [1])], name, keepdims=1)


def _as_float(s: Steps, choice: str, name: str) -> str:
    return s.emit("Cast", [choice], name, to=1)  # float32


def _compared(operator: str) -> Write:
    def write(s: Steps, at: dict[str, Any], a: list[str], name: str, args: Sequence[int]) -> str:
        zero = [] if len(a) > 1 else [s.number(name, 0.0)]
        return _as_float(s, s.emit(operator, [*a, *zero], f"{name}.choice"), name)

    return write


def _slice(s: Steps, at: dict[str, Any], a: list[str], name: str, args: Sequence[int]) -> str:
    ends = [s.whole(f"{name}.{k}", [v]) for k, v in enumerate((at["start"], at["start"] + at["width"], 1))]
    return s.emit("Slice", [a[0], *ends], name)


def _pad(s: Steps, at: dict[str, Any], a: list[str], name: str, args: Sequence[int]) -> str:
    behind = at["width"] - at["start"] - s.width(args[0])
    return s.emit("Pad", [a[0], s.whole(name, [0, at["start"], 0, behind])], name)


def _spread(s: Steps, at: dict[str, Any], a: list[str], name: str, args: Sequence[int]) -> str:
    return s.emit("Expand", [a[0], s.whole(name, [1, at["width"]])], name)


def _pick(s: Steps, at: dict[str, Any], a: list[str], name: str, args: Sequence[int]) -> str:
    index = s.emit("Unsqueeze", [a[1], s.whole(name, [1])], f"{name}.index")
    return s.emit("GatherElements", [a[0], index], name, axis=1)


def _row_param(s: Steps, at: dict[str, Any], a: list[str], name: str, args: Sequence[int]) -> str:
    return s.spread(s.parameter(at["param"]), name, s.program.types[s.place(name)])


def _take(s: Steps, at: dict[str, Any], a: list[str], name: str, args: Sequence[int]) -> str:
    return s.emit("Gather", [s.parameter(at["param"]), a[0]], name, axis=0)


def _matmul(s: Steps, at: dict[str, Any], a: list[str], name: str, args: Sequence[int]) -> str:
    return s.emit("MatMul", [a[0], s.parameter(at["param"])], name)


def _zeros(s: Steps, at: dict[str, Any], a: list[str], name: str, args: Sequence[int]) -> str:
    zeros = s.constant(f"{name}.zeros", np.zeros((1, at["width"]), np.float32))
    return s.spread(zeros, name, s.program.types[s.place(name)])


def _argmax(s: Steps, at: dict[str, Any], a: list[str], name: str, args: Sequence[int]) -> str:
    return s.emit("ArgMax", [a[0]], name, axis=1, keepdims=0)


def _above(s: Steps, at: dict[str, Any], a: list[str], name: str, args: Sequence[int]) -> str:
    column = s.emit("Squeeze", [a[0], s.whole(name, [1])], f"{name}.column")
    choice = s.emit("Greater", [column, s.number(name, at["threshold"])], f"{name}.choice")
    return s.emit("Cast", [choice], name, to=7)  # int64


def _to_float(s: Steps, at: dict[str, Any], a: list[str], name: str, args: Sequence[int]) -> str:
    column = s.emit("Unsqueeze", [a[0], s.whole(name, [1])], f"{name}.column")
    return _as_float(s, column, name)


def _same_int(s: Steps, at: dict[str, Any], a: list[str], name: str, args: Sequence[int]) -> str:
    choice = s.emit("Equal", a, f"{name}.choice")
    return _as_float(s, s.emit("Unsqueeze", [choice, s.whole(name, [1])], f"{name}.column"), name)


def _normal_cdf(s: Steps, at: dict[str, Any], a: list[str], name: str, args: Sequence[int]) -> str:
    scaled = s.emit("Mul", [a[0], s.number(name, 0.5**0.5)], f"{name}.scaled")
    erf = s.emit("Erf", [scaled], f"{name}.erf")
    above = s.emit("Add", [erf, s.number(f"{name}.one", 1.0)], f"{name}.above")
    return s.emit("Mul", [above, s.number(f"{name}.half", 0.5)], name)


def _patches(s: Steps, at: dict[str, Any], a: list[str], name: str, args: Sequence[int]) -> str:
    """The pixels of every window, by number; behind the last column is a zero for what lies outside."""
    w = Windows.of(at)
    height, width, _ = w.image
    pixels = np.full((height + 2 * w.padding, width + 2 * w.padding, w.image[2]), w.columns)
    pixels[w.padding : w.padding + height, w.padding : w.padding + width] = np.arange(w.columns).reshape(
        w.image
    )
    index = np.empty((1, w.down, w.across, *w.size, w.image[2]), np.int64)
    for row, column, found in w.pixels(pixels[None]):
        index[:, :, :, row, column] = found
    which = s.constant(f"{name}.pixels", index.reshape(-1))
    wide = s.emit("Pad", [a[0], s.whole(f"{name}.pad", [0, 0, 0, 1])], f"{name}.padded")
    return s.emit(
        "Reshape",
        [s.emit("Gather", [wide, which], f"{name}.all", axis=1), s.whole(name, [-1, w.width])],
        name,
    )


def _unpatch(s: Steps, at: dict[str, Any], a: list[str], name: str, args: Sequence[int]) -> str:
    w = Windows.of(at)
    if w.size != (1, 1) or w.stride != 1:
        raise s.refused("it adds windows up that overlap")
    return s.emit("Reshape", [a[0], s.whole(name, [-1, w.columns])], name)


OPERATORS: dict[str, Write] = {
    **{
        ours: _plain(theirs)
        for ours, theirs in (
            *(("add", "Add"), ("sub", "Sub"), ("mul", "Mul"), ("div", "Div"), ("maximum", "Max")),
            *(("sigmoid", "Sigmoid"), ("tanh", "Tanh"), ("relu", "Relu"), ("exp", "Exp"), ("log", "Log")),
            *(("softplus", "Softplus"), ("sqrt", "Sqrt"), ("abs", "Abs"), ("sign", "Sign")),
            ("stop_gradient", "Identity"),
        )
    },
    "above": _above,
    "argmax": _argmax,
    "concat": lambda s, at, a, name, args: s.emit("Concat", a, name, axis=1),
    "dropout": lambda s, at, a, name, args: a[0],
    "equal": _compared("Equal"),
    "matmul": _matmul,
    "max_cols": _reduced("ReduceMax"),
    "normal_cdf": _normal_cdf,
    "pad": _pad,
    "patches": _patches,
    "pick": _pick,
    "row_param": _row_param,
    "same_int": _same_int,
    "scale": _numbered("Mul"),
    "shift": _numbered("Add"),
    "slice": _slice,
    "spread_cols": _spread,
    "step": _compared("Greater"),
    "sum_cols": _reduced("ReduceSum"),
    "take": _take,
    "to_float": _to_float,
    "unpatch": _unpatch,
    "zeros": _zeros,
}
"""By primitive. What is not here moves rows between messages, or is of backward programs alone."""
