"""Programs: the pure, row- or segment-wise mathematics inside a node.

A program is a straight line of primitives in single-assignment form, traced from a Python function. Its
values are arrays [rows, width]; each lives in a *row space* ("rows" unless said otherwise): a space states
how many rows a message has there. Operands are float inputs (payloads), state expressions (integers, one a
row), and parameters, which enter only through `matmul`, `matmul_t`, `take` and `row_param`: that is what lets
the gradient of a weight be deferred to one product over many rows.

>>> p = trace(lambda p, x: tanh(x @ p.W), {"x": 4}, {"W": (4, 3)})
>>> p.outputs_types[0].width
3
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from amphw.ir.errors import ProgramError
from amphw.ir.expr import Expr, from_json, lift, to_json
from amphw.ir.primitives import PRIMITIVES, RowContext, ValueType


@dataclass(frozen=True)
class ParamSpec:
    """A parameter: shape (rows, columns) or (columns,), and how it starts.

    init: "glorot" (uniform, +-sqrt(6/(fan_in+fan_out))), "zeros", "uniform:0.1", "normal:0.02", "identity",
    "normal" alone, which is N(0, 1), or "given": it starts at `values`, an array of this shape that nobody
    changes, of float32 but where double precision was asked for. They are no part of what the parameter is:
    specs are equal, and a graph's fingerprint is the same, whatever they are.
    """

    name: str
    shape: tuple[int, ...]
    init: str = "glorot"
    values: np.ndarray | None = field(default=None, compare=False, repr=False)

    @classmethod
    def given(cls, name: str, values: np.ndarray, dtype: type = np.float32) -> ParamSpec:
        """A parameter that starts at (a copy of) these values."""
        kept: np.ndarray = np.array(values, dtype, order="C")
        kept.setflags(write=False)
        return cls(name, kept.shape, "given", kept)

    def initial(self, rng: np.random.Generator, dtype: type = np.float32) -> np.ndarray:
        """An array of this type [shape]. What is drawn is rounded to float32 in any type, so that all
        executors begin alike."""
        kind, _, argument = self.init.partition(":")
        if kind == "zeros":
            value = np.zeros(self.shape)
        elif kind == "glorot":
            limit = float(np.sqrt(6.0 / sum(self.shape)))
            value = rng.uniform(-limit, limit, self.shape)
        elif kind == "uniform":
            value = rng.uniform(-float(argument), float(argument), self.shape)
        elif kind == "normal":
            value = rng.normal(0.0, float(argument or 1), self.shape)
        elif kind == "identity":
            value = np.eye(self.shape[0], self.shape[1])
        elif kind == "given":
            if self.values is None:
                raise ProgramError(f"parameter '{self.name}' starts at given values, but there are none")
            return self.values.astype(dtype)
        else:
            raise ProgramError(
                f"parameter '{self.name}': unknown init '{self.init}'; use glorot, zeros, uniform:A, "
                "normal:S, identity or given"
            )
        return value.astype(np.float32).astype(dtype)


@dataclass(frozen=True)
class Instr:
    """One primitive applied to earlier values."""

    op: str
    args: tuple[int, ...]
    attrs: tuple[tuple[str, Any], ...] = ()

    def attr(self) -> dict[str, Any]:
        return dict(self.attrs)


@dataclass(frozen=True)
class Program:
    """inputs, then state expressions (`ints`), then instructions number the values 0, 1, 2, ...

    `spaces` maps the spaces that the program itself opens to their row count a message (an expression over
    the firing state); those of its inputs get theirs from the edges.
    """

    inputs: tuple[tuple[str, ValueType], ...]
    ints: tuple[tuple[Expr, str], ...]
    params: tuple[ParamSpec, ...]
    spaces: tuple[tuple[str, Expr], ...]
    instrs: tuple[Instr, ...]
    outputs: tuple[int, ...]
    types: tuple[ValueType, ...] = field(compare=False)

    @property
    def outputs_types(self) -> tuple[ValueType, ...]:
        return tuple(self.types[o] for o in self.outputs)

    def param(self, name: str) -> ParamSpec:
        return next(p for p in self.params if p.name == name)

    def read_by(self, outputs: Iterable[int]) -> frozenset[int]:
        """Numbers of the inputs and state expressions that these outputs, by their positions, are made of.

        Inputs come first: a number from `len(inputs)` on is that of a state expression.
        """
        first = len(self.inputs) + len(self.ints)
        found = set[int]()
        waiting = [self.outputs[k] for k in outputs]
        while waiting:
            if (i := waiting.pop()) not in found:
                found.add(i)
                waiting.extend(self.instrs[i - first].args if i >= first else ())
        return frozenset(i for i in found if i < first)

    def run(
        self,
        ctx: RowContext,
        inputs: Sequence[np.ndarray],
        ints: Sequence[np.ndarray],
        params: Mapping[str, np.ndarray],
    ) -> list[np.ndarray]:
        """Evaluate over all rows of a frame -> the outputs. inputs [rows, width], ints [rows]."""
        values: list[np.ndarray] = [*inputs, *ints]
        for instr in self.instrs:
            primitive = PRIMITIVES[instr.op]
            values.append(primitive.evaluate(ctx, dict(instr.attrs), params, [values[a] for a in instr.args]))
        return [values[o] for o in self.outputs]

    def __str__(self) -> str:
        names = [n for n, _ in self.inputs] + [f"<{e}>" for e, _ in self.ints]
        lines = []
        for i, instr in enumerate(self.instrs):
            names.append(f"%{i}")
            extra = ", ".join(f"{k}={v}" for k, v in instr.attrs)
            args = ", ".join(names[a] for a in instr.args)
            t = self.types[len(names) - 1]
            lines.append(
                f"%{i}: [{t.space}, {t.width}] = {instr.op}({', '.join(x for x in (args, extra) if x)})"
            )
        return "\n".join([*lines, "return " + ", ".join(names[o] for o in self.outputs)])

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": [[n, t.to_json()] for n, t in self.inputs],
            "ints": [[to_json(e), s] for e, s in self.ints],
            "params": [[p.name, list(p.shape), p.init] for p in self.params],
            "spaces": [[n, to_json(e)] for n, e in self.spaces],
            "instrs": [
                [i.op, list(i.args), {k: list(v) if isinstance(v, tuple) else v for k, v in i.attrs}]
                for i in self.instrs
            ],
            "outputs": list(self.outputs),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Program:
        builder = Builder([ParamSpec(n, tuple(s), i) for n, s, i in data["params"]])
        ids = [builder.input(n, ValueType.from_json(t)).id for n, t in data["inputs"]]
        for name, expression in data["spaces"]:
            builder.spaces[name] = from_json(expression)
        ids += [builder.integer(from_json(e), s).id for e, s in data["ints"]]
        for op, args, attrs in data["instrs"]:
            attrs = {k: tuple(v) if isinstance(v, list) else v for k, v in attrs.items()}
            ids.append(builder.emit(op, [builder.value(ids[a]) for a in args], **attrs).id)
        return builder.build([builder.value(ids[o]) for o in data["outputs"]])


class Value:
    """A value while tracing: operators record instructions. A vector parameter beside it is on every row."""

    def __init__(self, builder: Builder, id: int):
        self.builder, self.id = builder, id

    @property
    def type(self) -> ValueType:
        return self.builder.types[self.id]

    @property
    def width(self) -> int:
        return self.type.width

    def __add__(self, other: Value | ParamRef | float) -> Value:
        return self._binary("add", other, lambda c: ("shift", c))

    __radd__ = __add__

    def __sub__(self, other: Value | ParamRef | float) -> Value:
        return self._binary("sub", other, lambda c: ("shift", -c))

    def __rsub__(self, other: ParamRef | float) -> Value:
        return -self + other

    def __mul__(self, other: Value | ParamRef | float) -> Value:
        return self._binary("mul", other, lambda c: ("scale", c))

    __rmul__ = __mul__

    def __truediv__(self, other: Value | ParamRef | float) -> Value:
        return self._binary("div", other, lambda c: ("scale", 1.0 / c))

    def __rtruediv__(self, other: float) -> Value:
        zeros = self.builder.emit("zeros", [], space=self.type.space, width=self.width)
        return (zeros + other) / self

    def __neg__(self) -> Value:
        return self.builder.emit("scale", [self], factor=-1.0)

    def __matmul__(self, weight: object) -> Value:
        if not isinstance(weight, ParamRef):
            what = f"{weight!r}; `x @ p.W` is of a parameter of the layer"
            raise ProgramError(f"a value is multiplied with a matrix that is a parameter, got {what}")
        op = "matmul_t" if weight.transposed else "matmul"
        return self.builder.emit(op, [self], param=weight.read(self.builder))

    def _binary(
        self, op: str, other: Value | ParamRef | float, constant: Callable[[float], tuple[str, float]]
    ) -> Value:
        if isinstance(other, ParamRef):
            name = other.read(self.builder, "as a row")
            other = self.builder.emit("row_param", [], param=name, space=self.type.space)
        if not isinstance(other, Value):
            name, c = constant(float(other))
            return self.builder.emit(name, [self], factor=c)
        a, b = self, other
        if a.width != b.width and 1 in (a.width, b.width):
            wide = max(a.width, b.width)
            a = a if a.width == wide else self.builder.emit("spread_cols", [a], width=wide)
            b = b if b.width == wide else self.builder.emit("spread_cols", [b], width=wide)
        return self.builder.emit(op, [a, b])


@dataclass(frozen=True)
class ParamRef:
    """A parameter while tracing: `x @ p.W` is a product with it, `x @ p.W.T` one with it transposed."""

    name: str
    builder: Builder
    transposed: bool = False

    @property
    def T(self) -> ParamRef:
        if len(shape := self.builder.params[self.name].shape) != 2:
            raise ProgramError(f"parameter '{self.name}' of shape {shape} is no matrix, which `.T` is of")
        return replace(self, transposed=not self.transposed)

    def read(self, builder: Builder, how: str = "") -> str:
        """Its name, for a program that reads it; ProgramError where it is of another one, or transposed and
        not read by a product. how: it is read otherwise, in words."""
        if builder is not self.builder:
            raise ProgramError(
                f"the parameter '{self.name}' belongs to another layer; one layer with several functions has "
                "one set of parameters for all of them"
            )
        if how and self.transposed:
            raise ProgramError(f"'{self.name}.T' is for products, as in `x @ p.{self.name}.T`, not {how}")
        return self.name


class Params:
    """Attribute access to the parameters while tracing: `p.W`."""

    def __init__(self, builder: Builder):
        self._builder = builder

    def __getattr__(self, name: str) -> ParamRef:
        if name not in self._builder.params:
            raise ProgramError(f"no parameter '{name}' (declared: {sorted(self._builder.params)})")
        return ParamRef(name, self._builder)


class Builder:
    """Records a program; equal instructions are shared."""

    def __init__(self, params: Sequence[ParamSpec] = ()):
        self.params = {p.name: p for p in params}
        self.inputs: list[tuple[str, ValueType]] = []
        self.spaces: dict[str, Expr] = {}
        self.types: list[ValueType] = []
        self._kinds: list[tuple[str, Any]] = []  # ("input", i) | ("int", (expr, space)) | ("instr", Instr)
        self._known: dict[Any, int] = {}

    def value(self, id: int) -> Value:
        return Value(self, id)

    def _append(self, kind: str, what: Any, type: ValueType) -> Value:
        self.types.append(type)
        self._kinds.append((kind, what))
        return Value(self, len(self.types) - 1)

    def input(self, name: str, type: ValueType) -> Value:
        self.inputs.append((name, type))
        return self._append("input", len(self.inputs) - 1, type)

    def integer(self, e: Expr | int, space: str = "rows") -> Value:
        """A state expression as an operand: one integer a row of `space`."""
        key = ("int", lift(e), space)
        if key not in self._known:
            self._known[key] = self._append("int", (lift(e), space), ValueType("int", space, 1)).id
        return Value(self, self._known[key])

    def emit(self, op: str, args: Sequence[Value], **attrs: Any) -> Value:
        if op not in PRIMITIVES:
            raise ProgramError(f"unknown primitive '{op}' (there are: {', '.join(sorted(PRIMITIVES))})")
        instr = Instr(op, tuple(a.id for a in args), tuple(sorted(attrs.items())))
        if instr not in self._known:
            shapes = {n: p.shape for n, p in self.params.items()}
            self._known[instr] = self._append(
                "instr", instr, PRIMITIVES[op].infer(dict(attrs), [a.type for a in args], shapes)
            ).id
        return Value(self, self._known[instr])

    def build(self, outputs: Sequence[Value]) -> Program:
        """The program, with inputs first, then the integers, then the instructions that `outputs` need."""
        needed: set[int] = set()
        stack = [v.id for v in outputs]
        while stack:
            i = stack.pop()
            if i not in needed:
                needed.add(i)
                kind, what = self._kinds[i]
                stack.extend(what.args if kind == "instr" else ())
        order = [i for i, (k, _) in enumerate(self._kinds) if k == "input"]
        order += [i for i, (k, _) in enumerate(self._kinds) if k == "int" and i in needed]
        n_front = len(order)
        order += [i for i, (k, _) in enumerate(self._kinds) if k == "instr" and i in needed]
        new = {old: i for i, old in enumerate(order)}
        instrs = tuple(
            replace(self._kinds[i][1], args=tuple(new[a] for a in self._kinds[i][1].args))
            for i in order[n_front:]
        )
        used = {dict(i.attrs).get("param") for i in instrs}
        return Program(
            inputs=tuple(self.inputs),
            ints=tuple(self._kinds[i][1] for i in order[len(self.inputs) : n_front]),
            params=tuple(p for p in self.params.values() if p.name in used),
            spaces=tuple(self.spaces.items()),
            instrs=instrs,
            outputs=tuple(new[v.id] for v in outputs),
            types=tuple(self.types[i] for i in order),
        )


def trace(
    function: Callable[..., Value | Sequence[Value]],
    inputs: Mapping[str, int | ValueType],
    params: Mapping[str, tuple[int, ...] | ParamSpec] | None = None,
    spaces: Mapping[str, Expr | int] | None = None,
    *,
    all_read: bool = True,
) -> Program:
    """Trace `function(p, *inputs)`, or `function(*inputs)` where no parameters are declared.

    inputs: name -> width (in the space "rows") or ValueType. params: name -> shape or ParamSpec.
    spaces: further row spaces that the program opens, with their row count a message. all_read: a parameter
    that is not read is an error; otherwise it is left out.
    """
    specs = [s if isinstance(s, ParamSpec) else ParamSpec(n, s) for n, s in (params or {}).items()]
    builder = Builder(specs)
    builder.spaces.update({n: lift(e) for n, e in (spaces or {}).items()})
    values = [
        builder.input(n, t if isinstance(t, ValueType) else ValueType("float", "rows", t))
        for n, t in inputs.items()
    ]
    out = function(Params(builder), *values) if specs else function(*values)
    program = builder.build([out] if isinstance(out, Value) else list(out))
    unused = {s.name for s in specs} - {p.name for p in program.params}
    if unused and all_read:
        raise ProgramError(f"the parameters {sorted(unused)} are declared but never used")
    return program
