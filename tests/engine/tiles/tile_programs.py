"""Random programs over all primitives, with row spaces and the operands to run them on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from amphw.ir.expr import ROW, Expr, Field, lift
from amphw.ir.functions import absolute
from amphw.ir.primitives import RowContext, ValueType
from amphw.ir.primitives.images import Windows
from amphw.ir.program import Builder, ParamSpec, Program, Value

SPACES = ("rows", "one", "other", "windows")
WIDTHS = (1, 2, 3, 5, 6)
ROWS_OF_TABLE = 4
WINDOWS_A_ROW = 4
ROW_MOVES = (("rows", "one"), ("other", "one"))
MANY = (("rows", "other"), ("other", "rows"))


@dataclass
class Operands:
    """A frame: rows of each space and message, and what the program's operands hold."""

    context: RowContext
    inputs: list[np.ndarray]
    ints: list[np.ndarray]
    params: list[np.ndarray] = field(default_factory=list)


def operands(program: Program, counts: list[tuple[int, int]], seed: int) -> Operands:
    """Random operands; counts: rows of each message in the spaces "rows" and "other"."""
    rng = np.random.default_rng(seed)
    by_space: dict[str, int | np.ndarray] = {
        "rows": np.array([a for a, _ in counts], np.int64),
        "one": 1,
        "other": np.array([b for _, b in counts], np.int64),
        "windows": np.array([WINDOWS_A_ROW * a for a, _ in counts], np.int64),
    }
    context = RowContext(len(counts), by_space)
    inputs = [rng.uniform(-1.5, 1.5, (context.total(t.space), t.width)) for _, t in program.inputs]
    ints = [_integers(rng, context, e, s) for e, s in program.ints]
    params = [rng.normal(size=p.shape) for p in program.params]
    return Operands(context, inputs, ints, params)


def _integers(rng: np.random.Generator, context: RowContext, e: Expr, space: str) -> np.ndarray:
    """What the fields of the random programs mean: `below5`, `row_other`."""
    if e == ROW:
        return context.row_in_message(space)
    if not isinstance(e, Field):
        assert hasattr(e, "value")
        return np.full(context.total(space), e.value)
    kind, _, rest = e.name.partition("_")
    if kind == "below":
        return rng.integers(0, int(rest), context.total(space))
    counts = np.broadcast_to(context.counts[rest], (context.n,))
    return rng.integers(0, counts[context.message_of_row(space)])


class Writer:
    """Writes one program, drawing every choice."""

    def __init__(self, draw: st.DrawFn):
        self.draw = draw
        self.builder = Builder()
        self.values: list[Value] = []
        self.ints: list[Value] = []

    def program(self) -> Program:
        for k in range(self.number(1, 4)):
            space = self.pick(SPACES if self.number(0, 2) == 0 else SPACES[:1])
            self.values.append(self.builder.input(f"x{k}", ValueType("float", space, self.pick(WIDTHS))))
        for _ in range(self.number(1, 14)):
            getattr(self, f"_{self.pick(KINDS)}")()
        chosen = [self.any() for _ in range(self.number(1, 3))]
        if self.ints and self.number(0, 1):
            chosen.append(self.pick(self.ints))
        return self.builder.build(chosen)

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pick(self, things):  # type: ignore[no-untyped-def]
        return self.draw(st.sampled_from(list(things)))

    def any(self) -> Value:
        # The latest values more often: deep programs are more interesting than wide ones.
        return self.values[max(0, len(self.values) - 1 - self.number(0, min(5, len(self.values) - 1)))]

    def like(self, x: Value) -> Value:
        return self.pick([v for v in self.values if v.type == x.type])

    def put(self, op: str, *args: Value, **attrs: object) -> None:
        self.values.append(self.builder.emit(op, args, **attrs))

    def param(self, *shape: int) -> str:
        name = f"p{'x'.join(map(str, shape))}_{self.number(0, 1)}"
        self.builder.params.setdefault(name, ParamSpec(name, shape))
        return name

    def index(self, name: str, space: str) -> Value:
        return self.builder.integer(Field(name), space)

    def _unary(self) -> None:
        differentiable = ("sigmoid", "tanh", "tanh", "relu", "abs", "softplus", "normal_cdf")
        op = self.pick((*differentiable, "step", "sign", "stop_gradient"))
        self.put(op, self.any())

    def _scaled(self) -> None:
        self.put(self.pick(("scale", "shift")), self.any(), factor=self.pick((-1.0, 1.0, 0.5, 2.0)))

    def _positive(self) -> None:
        self.put(self.pick(("log", "sqrt")), absolute(self.any()) + 0.5)

    def _exp(self) -> None:
        self.put("exp", self.builder.emit("tanh", [self.any()]))

    def _binary(self) -> None:
        x = self.any()
        self.put(self.pick(("add", "add", "sub", "mul", "mul", "maximum")), x, self.like(x))

    def _div(self) -> None:
        x = self.any()
        self.put("div", x, absolute(self.like(x)) + 0.5)

    def _concat(self) -> None:
        x = self.any()
        others = [v for v in self.values if v.type.space == x.type.space]
        parts = [x, *(self.pick(others) for _ in range(self.number(1, 2)))]
        if sum(p.width for p in parts) <= 12:
            self.put("concat", *parts)

    def _slice(self) -> None:
        x = self.any()
        width = self.number(1, x.width)
        self.put("slice", x, start=self.number(0, x.width - width), width=width)

    def _split(self) -> None:
        x = self.any()
        for k in range(3 if x.width % 3 == 0 else 1):
            width = x.width // (3 if x.width % 3 == 0 else 1)
            self.put("slice", x, start=k * width, width=width)

    def _pad(self) -> None:
        x = self.any()
        start = self.number(0, 2)
        self.put("pad", x, start=start, width=start + x.width + self.number(0, 2))

    def _columns(self) -> None:
        self.put(self.pick(("sum_cols", "max_cols")), self.any())

    def _spread_cols(self) -> None:
        narrow = [v for v in self.values if v.width == 1]
        if narrow:
            self.put("spread_cols", self.pick(narrow), width=self.pick(WIDTHS))

    def _with_column(self) -> None:
        x = self.any()
        narrow = [v for v in self.values if v.width == 1 and v.type.space == x.type.space]
        if narrow:
            self.values.append(
                self.pick((x + self.pick(narrow), self.pick(narrow) * x, x - self.pick(narrow)))
            )

    def _matmul(self) -> None:
        x = self.any()
        self.put("matmul", x, param=self.param(x.width, self.pick(WIDTHS)))

    def _linear(self) -> None:
        x = self.any()
        width = self.pick(WIDTHS)
        y = self.builder.emit("matmul", [x], param=self.param(x.width, width))
        b = self.builder.emit("row_param", [], param=self.param(width), space=x.type.space)
        self.values.append(y + b + b if self.pick((False, False, True)) else y + b)

    def _products(self) -> None:
        x = self.any()
        width = self.pick(WIDTHS)
        y = self.any()
        if y.type.space == x.type.space:
            a = self.builder.emit("matmul", [x], param=self.param(x.width, width))
            b = self.builder.emit("matmul", [y], param=self.param(y.width, width))
            self.values.append(a + b)

    def _gates(self) -> None:
        x = self.any()
        z = self.builder.emit("matmul", [x], param=self.param(x.width, 6))
        width = self.pick((1, 2, 3))
        parts = [self.builder.emit("slice", [z], start=at, width=width) for at in range(0, 6, width)]
        ops = [self.pick(("sigmoid", "tanh")) for _ in parts]
        gates = [self.builder.emit(op, [part]) for op, part in zip(ops, parts, strict=True)]
        y = self.pick([v for v in self.values if v.type == parts[0].type] or gates)
        new = y
        for gate in gates[1:]:
            new = self.pick((new + gate * y, new * gate, new - gate, gates[0] * gate + new))
        self.values += [*gates[:2], new, self.builder.emit("concat", [new, gates[0]])]

    def _normalised(self) -> None:
        e = self.builder.emit("exp", [self.builder.emit("tanh", [self.any()])])
        self.values.append(e / self.builder.emit("sum_cols", [e]))

    def _row_param(self) -> None:
        x = self.any()
        self.put("row_param", param=self.param(x.width), space=x.type.space)

    def _take(self) -> None:
        space = self.any().type.space
        index = self.pick([i for i in self.ints if i.type.space == space] * self.number(0, 1) or [None])
        if index is None:
            index = self.index(f"below_{ROWS_OF_TABLE}", space)
            self.put("take", index, param=self.param(ROWS_OF_TABLE, self.pick(WIDTHS)))
        else:
            self.put("take", index, param=self.param(12, self.pick(WIDTHS)))

    def _embedded(self) -> None:
        """What `tile_fold` is about, and what looks like it: tables and weights may have other readers."""
        x = self.any()
        space, width = x.type.space, self.pick(WIDTHS)
        wide = self.pick(WIDTHS)
        row = self.builder.emit(
            "take", [self.index(f"below_{ROWS_OF_TABLE}", space)], param=self.param(ROWS_OF_TABLE, wide)
        )
        parts = self.pick(([row, x], [x, row], [row]))
        left = self.builder.emit("concat", parts) if len(parts) > 1 else row
        y = self.builder.emit("matmul", [left], param=self.param(left.width, width))
        self.values.append(y)
        if self.number(0, 1):
            y = y + self.builder.emit("row_param", [], param=self.param(width), space=space)
        if self.number(0, 2) == 0:
            y = y + self.builder.emit("matmul", [x], param=self.param(x.width, width))
        self.values.append(y)

    def _zeros(self) -> None:
        x = self.any()
        self.put("zeros", space=x.type.space, width=x.width)

    def _pick(self) -> None:
        x = self.any()
        self.put("pick", x, self.index(f"below_{x.width}", x.type.space))

    def _place(self) -> None:
        narrow = [v for v in self.values if v.width == 1]
        if narrow:
            x, width = self.pick(narrow), self.pick(WIDTHS)
            self.put("place", x, self.index(f"below_{width}", x.type.space), width=width)

    def _dropout(self) -> None:
        x = self.any()
        keys = [self.index("below_3", x.type.space), self.builder.integer(ROW, x.type.space)]
        self.put("dropout", x, *keys, rate=0.25, seed=7)

    def _uniform(self) -> None:
        space = self.any().type.space
        keys = [self.index("below_3", space), self.builder.integer(ROW, space)]
        self.put("uniform", *keys, space=space, width=self.pick(WIDTHS), seed=5)

    def _integer(self) -> None:
        x = self.any()
        if self.number(0, 1):
            self.ints.append(self.builder.emit("argmax", [x]))
        else:
            self.ints.append(self.builder.emit("above", [x], threshold=0.1))
        if self.number(0, 3) == 0:  # once more, after it has been a number
            number = self.builder.emit("to_float", [self.ints[-1]])
            self.ints.append(self.builder.emit("to_int", [number]))

    def _from_integer(self) -> None:
        space = self.any().type.space
        known = [i for i in self.ints if i.type.space == space] or [self.index("below_2", space)]
        one = self.pick(known)
        if self.number(0, 1):
            self.put("to_float", one)
        else:
            self.put("same_int", one, self.builder.integer(lift(1), space))

    def _reduce_rows(self) -> None:
        x = self.any()
        if x.type.space != "one":
            self.put(self.pick(("sum_rows", "max_rows")), x, space="one", source=x.type.space)

    def _spread_rows(self) -> None:
        here = [v for v in self.values if v.type.space == "one"]
        if here:
            self.put("spread_rows", self.pick(here), space=self.pick(("rows", "other")), source="one")

    def _gather_rows(self) -> None:
        x = self.any()
        if x.type.space != "one":
            space = self.pick(("rows", "other"))
            index = self.index(f"row_{x.type.space}", space)
            self.put("gather_rows", x, index, space=space, source=x.type.space)

    def _scatter_rows(self) -> None:
        x = self.any()
        if x.type.space != "one":
            space = self.pick(SPACES)
            index = self.index(f"row_{space}", x.type.space)
            self.put("scatter_rows", x, index, space=space, source=x.type.space)

    def _attend(self) -> None:
        q, k, v = self.any(), self.any(), self.any()
        if k.type.space != v.type.space:
            return
        wide, heads = max(q.width, k.width), self.pick((1, 2))
        wide += wide % heads
        q, k, v = (
            self.builder.emit("pad", [x], start=0, width=width)
            for x, width in ((q, wide), (k, wide), (v, v.width + v.width % heads))
        )
        seen = [self.index("below_3", q.type.space)] if self.number(0, 1) else []
        self.put("attend", q, k, v, *seen, space=q.type.space, source=k.type.space, heads=heads)

    def _patches(self) -> None:
        images = [v for v in self.values if v.type.space == "rows" and v.width <= 12]
        if images:
            x = self.pick(images)
            channels = -(-x.width // 4)
            if x.width % 4:
                x = self.builder.emit("pad", [x], start=0, width=4 * channels)
            windows = self.pick(_windows(channels))
            self.put("patches", x, space="windows", source="rows", **windows.attrs)

    def _unpatch(self) -> None:
        found = [v for v in self.values if v.type.space == "windows" and v.width <= 4]
        if found:
            x = self.pick(found)
            (pixels, *_) = _windows(x.width)
            self.put("unpatch", x, space="rows", source="windows", **pixels.attrs)


def _windows(channels: int) -> list[Windows]:
    """Four windows of an image of 2 x 2 pixels: its pixels, and larger ones that reach over the edge."""
    image = (2, 2, channels)
    return [Windows(image, (1, 1)), Windows(image, (2, 2), 2, 1)]


KINDS = tuple(name[1:] for name in vars(Writer) if name.startswith("_") and not name.startswith("__")) + (
    "unary",
    "binary",
    "split",
    "concat",
    "linear",
    "embedded",
    "patches",
)  # those that the peepholes are about, more often


@st.composite
def programs(draw: st.DrawFn) -> Program:
    return Writer(draw).program()


counts = st.lists(st.sampled_from([(0, 0), (1, 1), (2, 1), (1, 3), (3, 2)]), max_size=4)
