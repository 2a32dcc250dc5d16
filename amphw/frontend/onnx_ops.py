"""The operators of ONNX as steps of a `Flow`, whose operations are called as PyTorch's.

An operator is a function of a `Node`, and returns what it makes: a step, a constant, or a list where it makes
several. Versions of operators differ in whether axes are an attribute or an operand; both are read.
https://onnx.ai/onnx/operators says what each one means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amphw.frontend.flow import Step
from amphw.frontend.onnx_loops import if_, loop, recurrent, scan

Operator = Callable[[Any], Any]

_NAMES = dict(
    [
        *(("Add", "add"), ("Sub", "sub"), ("Mul", "mul"), ("Div", "div"), ("Neg", "neg"), ("Exp", "exp")),
        *(("Log", "log"), ("Sqrt", "sqrt"), ("Reciprocal", "reciprocal"), ("Abs", "abs"), ("Relu", "relu")),
        *(("Tanh", "tanh"), ("Sigmoid", "sigmoid"), ("Softplus", "softplus"), ("Mod", "remainder")),
        *(
            ("Greater", "gt"),
            ("GreaterOrEqual", "ge"),
            ("Less", "lt"),
            ("LessOrEqual", "le"),
            ("Equal", "eq"),
        ),
        *(("Not", "logical_not"), ("And", "logical_and"), ("Or", "logical_or"), ("Where", "where")),
        *(("MatMul", "matmul"), ("Identity", "clone"), ("Swish", "silu")),
    ]
)
"""Operators that PyTorch has under another name, with the same operands."""


_DEFAULTS = {"fmod": 0, "alpha": 1.0}
"""Attributes of renamed operators, and what they are where PyTorch's has none."""


def _renamed(op: str) -> Operator:
    def renamed(n: Any) -> Step:
        for name, value in n.attributes.items():
            if value != _DEFAULTS.get(name):
                raise n.error(f"with {name}={value} has no counterpart here")
        given = [n.step(k) for k in range(len(n.given))]
        if op == "div" and n.whole() and any(x.kind == "float" for x in given):
            raise n.error(
                "divides whole numbers that are computed, and drops the rest; numbers with one are known"
            )
        made: Step = n.emit(op, *given)
        return made

    return renamed


def _broadcast(a: Any, b: Any) -> tuple[Any, ...]:
    """The shape of two together, where dimensions may have names."""
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b), strict=True)
    return tuple(y if x == 1 else x for x, y in pairs)


def _dims(n: Any, x: Step, axes: Any) -> list[int]:
    rank = len(x.shape or ())
    return [int(a) % rank for a in ([axes] if isinstance(axes, int) else axes)]


def _reduced(op: str) -> Operator:
    def reduce(n: Any) -> Any:
        x, axes = n.step(0), n.constant(1, "axes")
        if not axes:
            if n.attribute("noop_with_empty_axes", 0):
                return x
            axes = list(range(len(x.shape or ())))
        return n.emit(op, x, _dims(n, x, axes), bool(n.attribute("keepdims", 1)))

    return reduce


def _power(n: Any) -> Step:
    return n.emit("pow", n.step(0), n.constant(1))


def _pairs(op: str) -> Operator:
    """Of two operands and more."""

    def fold(n: Any) -> Any:
        made = n.step(0)
        for k in range(1, len(n.given)):
            other = n.step(k)
            made = n.emit(op, made, other, shape=_broadcast(made.shape, other.shape))
        return made

    return fold


def _clip(n: Any) -> Step:
    return n.emit("clamp", n.step(0), n.constant(1, "min"), n.constant(2, "max"))


def _gemm(n: Any) -> Step:
    a, b = n.step(0), n.step(1)
    if n.attribute("transA", 0):
        a = n.emit("t", a, shape=(a.shape or ())[::-1])
    if n.attribute("transB", 0):
        b = n.emit("t", b, shape=(b.shape or ())[::-1])
    alpha, beta = n.attribute("alpha", 1.0), n.attribute("beta", 1.0)
    if not n.has(2):
        made = n.emit("matmul", a, b)
        return made if alpha == 1 else n.emit("mul", made, alpha)
    return n.emit("addmm", n.step(2), a, b, beta=beta, alpha=alpha)


def _gather(n: Any) -> Any:
    x, index = n.given[:2]
    axis = int(n.attribute("axis", 0))
    if not isinstance(x, Step):
        if isinstance(index, Step):
            raise n.error("looks a constant up; as an initializer of the graph it is a parameter")
        # Of a list of lengths the result is one, too, and no text.
        return np.asarray(np.take(x, np.asarray(index).astype(int), axis), x.dtype)
    axis %= len(x.shape or (0,))
    if isinstance(index, Step):
        if x.op == "weight" and axis == 0:
            return n.emit("embedding", x, index, kind="float")
        return n.emit("index", x, [*[None] * axis, index], kind=x.kind)
    places = np.asarray(index)
    if places.ndim == 0:
        return n.emit("select", x, axis, int(places))
    parts = [
        n.emit("slice", x, axis, int(i), int(i) + 1 or None, shape=_sized(x, axis, 1)) for i in places.flat
    ]
    return n.emit("cat", parts, axis) if places.ndim == 1 else _no(n, "by a table of places")


def _no(n: Any, what: str) -> Any:
    raise n.error(f"{what} has no counterpart here")


def _sized(x: Step, axis: int, size: int) -> tuple[Any, ...]:
    return tuple(size if k == axis else d for k, d in enumerate(x.shape or ()))


def _along(op: str) -> Operator:
    return lambda n: n.emit(op, n.step(0), int(n.attribute("axis", -1)) % len(n.step(0).shape))


def _layer_norm(n: Any) -> Any:
    x = n.step(0)
    axis = int(n.attribute("axis", -1)) % len(x.shape or ())
    shape = (x.shape or ())[axis:]
    if any(isinstance(d, str) for d in shape):
        _no(n, "over positions")
    bias = n.step(2) if n.has(2) else None
    return n.emit("layer_norm", x, list(shape), n.step(1), bias, n.attribute("epsilon", 1e-5))


def _rms_norm(n: Any) -> Any:
    x = n.step(0)
    if int(n.attribute("axis", -1)) % len(x.shape or ()) != len(x.shape or ()) - 1:
        _no(n, "over several dimensions")
    last = [len(x.shape or ()) - 1]
    square = n.emit("mul", x, x, shape=x.shape)
    mean = n.emit("mean", square, last, True, shape=_sized(x, last[0], 1))
    root = n.emit(
        "rsqrt", n.emit("add", mean, n.attribute("epsilon", 1e-5), shape=mean.shape), shape=mean.shape
    )
    return n.emit("mul", n.emit("mul", x, root, shape=x.shape), n.step(1))


def _concat(n: Any) -> Any:
    if not any(isinstance(x, Step) for x in n.given):
        return np.concatenate([np.asarray(x) for x in n.given], n.attribute("axis"))
    parts = [n.step(k) for k in range(len(n.given))]
    return n.emit("cat", parts, int(n.attribute("axis")) % len(parts[0].shape or (0,)))


def _split(n: Any) -> list[Any]:
    x, axis = n.step(0), int(n.attribute("axis", 0))
    axis %= len(x.shape or (0,))
    sizes = n.constant(1, "split")
    if sizes is None:
        whole = (x.shape or ())[axis]
        if not isinstance(whole, int):
            _no(n, f"of the length '{whole}', which differs,")
        each = -(-whole // (n.attribute("num_outputs") or n.outputs))
        sizes = [min(each, whole - at) for at in range(0, whole, each)]
    ends = np.cumsum(sizes).tolist()
    return [
        n.emit("slice", x, axis, end - size, end, out=k)
        for k, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]


def _slice(n: Any) -> Any:
    x = n.given[0]
    starts, ends = n.constant(1, "starts"), n.constant(2, "ends")
    axes = n.constant(3, "axes", list(range(len(starts))))
    steps = n.constant(4, "steps", [1] * len(starts))
    if not isinstance(x, Step):
        cuts = [slice(None)] * x.ndim
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            cuts[axis] = slice(start, end if abs(end) < 2**31 - 1 else None, step)
        return x[tuple(cuts)]
    made = x
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        made = _cut(n, made, axis % len(x.shape or ()), start, end, step)
    return made


def _cut(n: Any, x: Step, axis: int, start: int, end: int, by: int) -> Step:
    size = (x.shape or ())[axis]
    if isinstance(size, str):
        if by == -1 and start == -1 and end < -(2**31):
            return n.emit("flip", x, [axis], shape=x.shape)
        if by == 1 and start == 0 and end >= 2**31 - 1:
            return x
        if by == 1 and start == -1:
            last = n.emit(
                "select", x, axis, -1, shape=tuple(d for k, d in enumerate(x.shape or ()) if k != axis)
            )
            return n.emit("unsqueeze", last, axis, shape=_sized(x, axis, 1))
        return n.emit("slice", x, axis, start, end, by)
    if by < 0:
        places = range(size)[slice(start, None if end < -size else end, by)]
        parts = [n.emit("slice", x, axis, p, p + 1, shape=_sized(x, axis, 1)) for p in places]
        return n.emit("cat", parts, axis, shape=_sized(x, axis, len(places)))
    first, last, _ = slice(start, end, by).indices(size)
    return n.emit("slice", x, axis, first, last, by, shape=_sized(x, axis, len(range(first, last, by))))


def _same(op: str) -> Operator:
    """What changes the shape alone; of constants numpy does it."""

    def view(n: Any) -> Any:
        x = n.given[0]
        if isinstance(x, Step):
            return n.emit(op, x)
        if op == "squeeze":
            axes = n.constant(1, "axes")
            return np.squeeze(x, None if axes is None else tuple(axes))
        if op == "unsqueeze":
            return np.expand_dims(x, tuple(n.constant(1, "axes")))
        return _no(n, "of lengths")

    return view


def _transpose(n: Any) -> Any:
    x = n.step(0)
    order = n.attribute("perm") or list(range(len(x.shape or ())))[::-1]
    return n.emit("permute", x, [int(k) for k in order])


def _shape(n: Any) -> Any:
    x = n.step(0)
    sizes = np.array(list(x.shape or ()), object)
    cut = sizes[slice(int(n.attribute("start", 0)), n.attribute("end"))]
    return cut.astype(np.int64) if all(isinstance(d, int) for d in cut) else cut


def _cast(n: Any) -> Any:
    x = n.given[0]
    if not isinstance(x, Step):
        return x  # lengths
    to_float = n.floats(int(n.attribute("to")))
    if x.kind == "float" and not to_float:
        # A choice of the network, 0 or 1, which counts as a number here.
        return n.emit("clone", x) if x.op in _CHOICES else _no(n, "of what is computed to whole numbers")
    return n.emit("to", x, kind="float" if to_float else "int")


def _border(n: Any) -> int:
    """How many zeros lie around an image on every side."""
    pads = n.attribute("pads") or [0]
    if n.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or len(set(pads)) > 1:
        _no(n, "with zeros that differ from side to side")
    return int(pads[0])


def _square(n: Any, name: str) -> int:
    """An attribute that is the same down and across."""
    sizes = set(n.attribute(name) or [1])
    if len(sizes) > 1:
        _no(n, f"with {name} that differ down and across")
    return int(sizes.pop())


def _conv(n: Any) -> Any:
    x = n.step(0)
    bias = n.step(2) if n.has(2) else None
    if len(x.shape or ()) != 4 or any(isinstance(d, str) for d in (x.shape or ())[2:]):
        _no(n, "of anything but images of one size")
    stride, dilation, groups = _square(n, "strides"), _square(n, "dilations"), int(n.attribute("group", 1))
    return n.emit("conv2d", x, n.step(1), bias, stride, _border(n), dilation, groups)


def _pool(op: str) -> Operator:
    def pool(n: Any) -> Any:
        if n.attribute("ceil_mode", 0):
            _no(n, "with ceil_mode")
        if len(n.step(0).shape or ()) != 4:
            _no(n, "of anything but images")
        size = [int(k) for k in n.attribute("kernel_shape")]
        more = (_square(n, "dilations"),) if op == "max_pool2d" else ()
        return n.emit(op, n.step(0), size, _square(n, "strides"), _border(n), *more)

    return pool


def _dropout(n: Any) -> Any:
    x = n.step(0)
    rate = n.constant(1, "ratio", 0.5)
    training = bool(n.constant(2)) if n.has(2) else False
    return n.emit("dropout", x, float(rate), training)


def _gelu(n: Any) -> Any:
    return n.emit("gelu", n.step(0), approximate=n.attribute("approximate", "none"))


def _leaky(n: Any) -> Any:
    return n.emit("leaky_relu", n.step(0), float(n.attribute("alpha", 0.01)))


def _range(n: Any) -> Any:
    start, limit, delta = n.given[:3]
    if np.asarray(start) != 0 or np.asarray(delta) != 1 or isinstance(limit, Step):
        _no(n, "of another range than the positions of a length")
    return n.emit("arange", n.step(1), kind="int", shape=(str(np.asarray(limit).item()),))


_CHOICES = {"gt", "ge", "lt", "le", "eq", "logical_not", "logical_and", "logical_or"}

OPERATORS: dict[str, Operator] = {
    **{theirs: _renamed(ours) for theirs, ours in _NAMES.items()},
    "AveragePool": _pool("avg_pool2d"),
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _conv,
    "Dropout": _dropout,
    "Expand": _same("expand"),
    "Flatten": _same("view"),
    "GRU": recurrent,
    "Gather": _gather,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "If": if_,
    "LSTM": recurrent,
    "LayerNormalization": _layer_norm,
    "LeakyRelu": _leaky,
    "LogSoftmax": _along("log_softmax"),
    "Loop": loop,
    "Max": _pairs("maximum"),
    "MaxPool": _pool("max_pool2d"),
    "Min": _pairs("minimum"),
    "Pow": _power,
    "RMSNormalization": _rms_norm,
    "RNN": recurrent,
    "Range": _range,
    "ReduceMax": _reduced("amax"),
    "ReduceMean": _reduced("mean"),
    "ReduceMin": _reduced("amin"),
    "ReduceSum": _reduced("sum"),
    "Reshape": _same("view"),
    "Scan": scan,
    "Shape": _shape,
    "Slice": _slice,
    "Softmax": _along("softmax"),
    "Split": _split,
    "Squeeze": _same("squeeze"),
    "Sum": _pairs("add"),
    "Transpose": _transpose,
    "Unsqueeze": _same("unsqueeze"),
}
"""By ONNX's name. What is not here has no counterpart."""
