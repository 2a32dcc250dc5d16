"""What a primitive is: value types, how rows belong to messages, the registry, and shape rules in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from amphw.ir.errors import ProgramError
from amphw.ir.primitives.kernel_text import KernelText

if TYPE_CHECKING:
    from amphw.ir.derive import Tape
    from amphw.ir.program import Value

Array = np.ndarray
Attrs = dict[str, Any]
Shapes = Mapping[str, tuple[int, ...]]
Product = Callable[[Array, Array], Array]
"""(a [m, k], b [k, n]) -> [m, n]."""


@dataclass(frozen=True)
class ValueType:
    """kind "float" [rows, width] or "int" [rows] (width 1), in a row space."""

    kind: str
    space: str
    width: int

    def to_json(self) -> list[Any]:
        return [self.kind, self.space, self.width]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> ValueType:
        return cls(*data)


def product(a: Array, b: Array) -> Array:
    """a @ b -> [m, n] for a [m, k] and b [k, n]; no warning of non-finite results, which show in the values.

    BLAS kernels may raise the flag "invalid" for finite operands, from what stands in the lanes that a small
    matrix leaves unused (numpy issues 13173, 24067), so the flag says nothing.
    """
    with np.errstate(all="ignore"):
        return np.matmul(a, b)  # type: ignore[no-any-return]


class RowContext:
    """How the rows of a frame belong to its messages, by space.

    counts: space -> rows of each message (int64 [n]), or an int where every message has as many. dtype: of
    the numbers that are made of no others. product: how rows are multiplied by a matrix, as
    `amphw.ir.precision` has it.
    """

    def __init__(
        self,
        n: int,
        counts: Mapping[str, int | Array],
        dtype: type = np.float32,
        product: Product = product,
    ):
        self.n, self.counts, self.dtype = n, counts, dtype
        self.product = product
        self._messages: dict[str, Array] = {}

    def total(self, space: str) -> int:
        """Rows of all messages together."""
        c = self.counts[space]
        return c * self.n if isinstance(c, int) else int(c.sum())

    def starts(self, space: str) -> Array:
        """First row of each message -> int64 [n]."""
        c = self.counts[space]
        if isinstance(c, int):
            return np.arange(self.n, dtype=np.int64) * c
        return np.concatenate([[0], np.cumsum(c)[:-1]]).astype(np.int64) if self.n else np.zeros(0, np.int64)

    def message_of_row(self, space: str) -> Array:
        """Number of the message that each row belongs to -> int64 [total rows]."""
        if space not in self._messages:
            self._messages[space] = np.repeat(np.arange(self.n, dtype=np.int64), self.counts[space])
        return self._messages[space]

    def row_in_message(self, space: str) -> Array:
        """Number of each row within its message -> int64 [total rows]."""
        return np.arange(self.total(space), dtype=np.int64) - self.starts(space)[self.message_of_row(space)]


class Recipe(Enum):
    """How the circuits, and the fixed-point device that is their oracle, compute a primitive."""

    SAME = "an operation of the same name, attributes and kind of number"
    ONES = "likewise, with 0 and 1 in the numbers' format"
    CURVE = "a curve that a table holds"
    NONE_NEEDED = "nothing is to be done"
    OWN = "a rule of its own: a method of that name in `amphw.rtl.fixed.lowering`"


Flops = Literal["makes", "reads", "moves", "product", "pairs"]
"""What counts as an operation: each number that is made, each that is read, nothing, a matrix product, or
what `attention.pair_operations` says for each query and each row of the message."""


@dataclass(frozen=True)
class Primitive:
    """One row of the table of operations: all that an executor must know of a primitive.

    infer: the shape rule; evaluate: what it means in numpy; vjp: gradients of the operands, in primitives.
    vjp takes (tape, attributes, numbers of the operands, number of the result, its gradient) and gives None
    for an operand without gradient.

    hardware: how circuits compute it, or in words why they cannot and what to do instead. flops: as `Flops`.
    kernel: of an elementwise one what it computes, in the C of `kernel_text`; the C++ engine and the OpenCL
    device compile it. view: the result may share its operand's memory.
    """

    infer: Callable[[Attrs, list[ValueType], Shapes], ValueType]
    evaluate: Callable[[RowContext, Attrs, Mapping[str, Array], list[Array]], Array]
    vjp: Callable[[Tape, Attrs, list[int], int, Value], list[Value | None]]
    _: KW_ONLY
    hardware: Recipe | str
    flops: Flops = "makes"
    kernel: KernelText | None = None
    view: bool = False


PRIMITIVES: dict[str, Primitive] = {}


def same(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    """Shape rule: float operands of one space and width, and a result like them."""
    first = types[0]
    for t in types:
        if t.kind != "float":
            raise ProgramError("an integer operand where a float one is needed; convert it with to_float()")
        if (t.space, t.width) != (first.space, first.width):
            raise ProgramError(
                f"operands do not fit: [{first.space}, {first.width}] and [{t.space}, {t.width}] (rows of "
                "space, width)"
            )
    return first


def width_of(
    get: Callable[[Attrs, list[ValueType]], int],
) -> Callable[[Attrs, list[ValueType], Shapes], ValueType]:
    """Shape rule: a result in the space of operand 0, whose width `get` says."""
    return lambda attrs, types, shapes: ValueType("float", types[0].space, get(attrs, types))


def need_ints(types: list[ValueType], first: int) -> None:
    """ProgramError unless the operands from number `first` on are integers in the space of operand 0."""
    for t in types[first:]:
        if t.kind != "int":
            raise ProgramError("a float operand where an integer one is needed")
        if t.space != types[0].space:
            raise ProgramError(
                f"the integer operand lives in space '{t.space}', the payload in '{types[0].space}'"
            )


def checked(index: Array, width: int, what: str) -> Array:
    """The index as it is; ProgramError naming `what` where an entry is outside 0 .. width - 1."""
    if index.size and (index.min() < 0 or index.max() >= width):
        bad = int(index[(index < 0) | (index >= width)][0])
        raise ProgramError(f"{what}: index {bad} is outside 0..{width - 1}")
    return index
