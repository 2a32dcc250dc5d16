"""A program that was written elsewhere, as steps on tensors whose lengths may be symbols.

It knows neither PyTorch nor any other source: a reader makes a `Flow`, `flow_blocks.py` finds what is
computed in one node, and `flow_run.py` writes it down as a model. Names of operations and the order of their
arguments are those of PyTorch's aten.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from amphw.frontend.source import FrontendError, SourceLine
from amphw.frontend.torch_ops import Weight

Size = int | str
"""Of one dimension: a number, or the name of a length that differs."""

Shape = tuple[Size, ...]


@dataclass(eq=False)
class Step:
    """One result of a program.

    op: the operation; "input", "weight" and "number" are none. args, kwargs: with steps for results, and a
    `Flow` for the body of a loop or a branch. shape: of a tensor, else none. kind: "float" for
    what is computed; "int" for what is known of an instance; "many" for several results. place: the line of
    the program's author. shown: how errors call it. truth: whether it is 0 or 1, as what holds is 1.
    """

    name: str
    op: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    shape: Shape | None = None
    kind: str = "float"
    place: SourceLine | None = None
    shown: str = ""
    truth: bool = False

    @property
    def static(self) -> tuple[int, ...]:
        """The dimensions that are numbers: the columns of a row."""
        return tuple(d for d in self.shape or () if isinstance(d, int))

    @property
    def width(self) -> int:
        return math.prod(self.static)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The dimensions whose lengths differ."""
        return tuple(d for d in self.shape or () if isinstance(d, str))

    @property
    def operands(self) -> Iterator[Step]:
        """The steps that it reads, its bodies' from outside among them."""
        yield from _steps((self.args, self.kwargs))

    def __repr__(self) -> str:
        return f"{self.shown or self.op} {list(self.shape or ())}"

    def error(self, message: str) -> FrontendError:
        """At the line of the program's author, where it is known."""
        return FrontendError(f"{self.shown or self.name}: {message}", self.place)


@dataclass(eq=False)
class Flow:
    """Steps in the order in which they are computed; what they read from outside are steps of another one."""

    inputs: list[Step]
    steps: list[Step]
    outputs: list[Any]

    @property
    def outside(self) -> Iterator[Step]:
        own = {*self.inputs, *self.steps}
        for step in self.steps:
            yield from (x for x in step.operands if x not in own)
        yield from (x for x in _steps(self.outputs) if x not in own)


def _steps(value: Any) -> Iterator[Step]:
    if isinstance(value, Step):
        yield value
    elif isinstance(value, Flow):
        yield from value.outside
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _steps(part)
    elif isinstance(value, dict):
        yield from _steps(tuple(value.values()))


def number(step: Step) -> float | int | None:
    """The number that a step is everywhere."""
    return step.args[0] if step.op == "number" else None


def is_truth(x: Any) -> bool:
    """Whether an operand is 0 or 1 everywhere."""
    if isinstance(x, Step):
        return x.truth or number(x) in (0, 1)
    return isinstance(x, int | float) and x in (0, 1)


def weight(step: Step) -> Weight | None:
    """The parameter that a step is."""
    return step.args[0] if step.op == "weight" else None


# --- steps that change a shape alone ------------------------------------------------------------------

VIEWS = {"view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", "unflatten", "view_copy"}
SAME = {
    "clone",
    "contiguous",
    "alias",
    "lift_fresh_copy",
    "_assert_tensor_metadata",
    "lift_fresh",
    "to",
    "_to_copy",
}
TURNS = {"permute", "transpose", "t", "movedim", "numpy_T", "swapaxes"}


def is_same(step: Step) -> bool:
    """Whether the row of a step is that of its first operand: no number of it changes its place."""
    if not step.args or not isinstance(step.args[0], Step) or step.shape is None:
        return False
    source = step.args[0]
    if source.shape is None:
        return False
    if source.kind != step.kind or (step.truth and not is_truth(source)):
        return False
    if step.op in SAME or (step.op == "dropout" and not _drops(step)):
        return True
    if step.op in VIEWS:
        return _places(source.shape) == _places(step.shape)
    if step.op in TURNS:
        return _kept(step)
    if step.op in ("expand", "expand_as", "broadcast_to"):
        return source.width == step.width
    if step.op == "slice":
        return source.shape == step.shape
    return False


def _drops(step: Step) -> bool:
    p, training = (*step.args[1:], *step.kwargs.values())[:2]
    return bool(training) and p != 0


def _places(shape: Shape) -> list[tuple[str, int]]:
    """Each symbol, with how many numbers lie before it."""
    found, before = [], 1
    for d in shape:
        if isinstance(d, str):
            found.append((d, before))
        else:
            before *= d
    return [*found, ("", before)]


def order(step: Step) -> list[int]:
    """Of a step that turns dimensions: which one of its operand each one is."""
    source = step.args[0]
    rank = len(source.shape)
    dims = list(range(rank))
    if step.op in ("t", "numpy_T"):
        return dims[::-1]
    if step.op in ("transpose", "swapaxes"):
        a, b = (d % rank for d in step.args[1:3])
        dims[a], dims[b] = b, a
        return dims
    if step.op == "permute":
        return [d % rank for d in step.args[1]]
    moved, to = ([x] if isinstance(x, int) else list(x) for x in step.args[1:3])
    rest = [d for d in dims if d not in [m % rank for m in moved]]
    for m, place in sorted(zip(moved, to, strict=True), key=lambda x: x[1] % rank):
        rest.insert(place % rank, m % rank)
    return rest


def _kept(step: Step) -> bool:
    shape = step.args[0].shape
    wide = [d for d in order(step) if isinstance(shape[d], int) and shape[d] != 1]
    return wide == sorted(wide)


# --- steps that mix positions -------------------------------------------------------------------------

OPENS = ("scan", "map_impl", "cond", "while_loop")
"""Operations that have bodies."""

ALONG = {
    *("sum", "mean", "amax", "amin", "softmax", "_softmax", "log_softmax", "_log_softmax", "select", "slice"),
    *(
        "flip",
        "index_select",
        "cat",
        "stack",
        "cumsum",
        "cumprod",
        "sort",
        "topk",
        "argmax",
        "argmin",
        "roll",
    ),
    *(
        "split",
        "chunk",
        "split_with_sizes",
        "unbind",
        "max",
        "min",
        "norm",
        "prod",
        "var",
        "std",
        "logsumexp",
    ),
}
"""Operations along the dimensions that their second operand names; without it along all."""

PRODUCTS = ("matmul", "mm", "bmm", "mv", "dot")

REDUCES = ("sum", "mean", "amax", "amin")


def along(step: Step) -> list[int]:
    """The dimensions, from the first on, of its operand that an operation of `ALONG` is along."""
    source = first(step)
    rank = len(source.shape or ())
    default = None if step.op in REDUCES else 0
    dims = step.args[1] if len(step.args) > 1 else step.kwargs.get("dim", default)
    if step.op in ("split", "chunk", "split_with_sizes", "select_scatter", "slice_scatter"):
        dims = step.args[2] if len(step.args) > 2 else 0
    if dims is None or dims == []:
        return list(range(rank))
    return [d % rank for d in ([dims] if isinstance(dims, int) else dims)]


def first(step: Step) -> Step:
    """The operand whose dimensions an operation is along."""
    source = step.args[0]
    found: Step = source[0] if isinstance(source, tuple | list) else source
    return found


def crossing(step: Step) -> bool:
    """Whether a step reads what is at other positions, or is not computed row by row for another reason."""
    if step.op == "getitem":
        return step.args[0].op in OPENS or crossing(step.args[0])
    if step.op in ("scaled_dot_product_attention", "windows", "index"):
        return True
    if step.op in PRODUCTS and isinstance(step.args[0], Step):
        return isinstance((step.args[0].shape or (0,))[-1], str)
    if step.op in ALONG and step.args:
        source = first(step)
        return any(isinstance((source.shape or ())[d], str) for d in along(step)) and not is_same(step)
    return False


def taken_apart(step: Step) -> list[Step]:
    """A reduction along columns and positions as two, a convolution along positions as windows and their
    product; any other step as it is."""
    if step.op == "conv1d" and step.symbols and isinstance((step.shape or ())[-1], str):
        return _convolution(step)
    if step.op not in REDUCES:
        return [step]
    source, dims = step.args[0], along(step)
    columns = [d for d in dims if isinstance(source.shape[d], int)]
    if not columns or len(columns) == len(dims):
        return [step]
    keep = tuple(1 if d in columns else size for d, size in enumerate(source.shape))
    inner = Step(f"{step.name}_columns", step.op, (source, columns, True), {}, keep, "float", step.place)
    inner.shown = step.shown
    step.args = (inner, [d for d in dims if d not in columns], *step.args[2:])
    return [inner, step]


def _convolution(step: Step) -> list[Step]:
    """A convolution along positions: what is in each window is brought there, and is a row then."""
    options: list[Any] = [None, [1], [0], [1], 1]
    options[: len(step.args) - 2] = step.args[2:]
    (x, weight), (bias, stride, padding, dilation, groups) = step.args[:2], options
    size, apart = weight.shape[2], _only(dilation)
    if _only(stride) != 1 or groups != 1:
        raise step.error("with a stride or groups has no counterpart along positions; without them it has")
    before = apart * (size - 1) // 2 if padding == "same" else 0 if padding == "valid" else _only(padding)
    if x.op in ("pad", "constant_pad_nd") and not any(x.args[2:3]) and len(x.args[1]) == 2:
        before, x = before + x.args[1][0], x.args[0]
    if x.shape[-1] != (step.shape or ())[-1]:
        raise step.error(
            f"gives a length of {(step.shape or ())[-1]} for one of {x.shape[-1]}, whose positions would "
            f"be others; pad by {apart * (size - 1)} in all, by padding='same' or torch.nn.functional.pad"
        )
    offsets = [apart * k - before for k in range(size)]
    shape = (*x.shape[:-2], size * x.shape[-2], x.shape[-1])
    inner = Step(f"{step.name}_windows", "windows", (x, offsets), {}, shape, "float", step.place, step.shown)
    step.op, step.args = "convolved", (inner, weight, bias)
    return [inner, step]


def _only(x: Any) -> int:
    found: int = x if isinstance(x, int) else x[0]
    return found
