"""From a program in floats to one in fixed point: kinds, shifts, and patterns that hardware has units for.

A product with a bias is one operation, so that it is rounded once; a gradient behind a ReLU is a gate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from amphw.ir.derive import Derivative, GradientTerm
from amphw.ir.errors import GraphError
from amphw.ir.primitives import PRIMITIVES, Recipe
from amphw.ir.program import Instr, Program
from amphw.rtl.fixed.program import FixedProgram, FixedType, Kind
from amphw.rtl.numbers.formats import Formats


@dataclass(frozen=True)
class FixedDerivative:
    """As `Derivative`, in fixed point; `inference` is the forward program as it runs without training."""

    forward: FixedProgram
    inference: FixedProgram
    backward: FixedProgram
    residuals: tuple[tuple[str, int], ...]
    wrt: tuple[int, ...]
    terms: tuple[GradientTerm, ...]


def lower_unit(node: str, derivative: Derivative, inference: Program, formats: Formats) -> FixedDerivative:
    """The programs of one node; GraphError names the node and what the hardware cannot compute."""
    d = derivative
    forward = lower_program(node, d.forward, ["value"] * len(d.forward.inputs), formats)
    # Residuals keep the kind that they had; further outputs of `forward` follow those of the node.
    own = len(forward.outputs) - sum(kind == "value" for kind, _ in d.residuals)
    number = {"input": lambda i: i, "output": lambda i: forward.outputs[i]}
    number["value"] = lambda i: forward.outputs[own + i]
    kinds: list[Kind] = ["gradient"] * len(d.float_outputs)
    kinds += [forward.types[number[kind](i)].kind for kind, i in d.residuals]
    return FixedDerivative(
        forward,
        lower_program(node, inference, ["value"] * len(inference.inputs), formats),
        lower_program(node, d.backward, kinds, formats),
        d.residuals,
        d.wrt,
        d.terms,
    )


def lower_program(node: str, program: Program, kinds: Sequence[Kind], formats: Formats) -> FixedProgram:
    """One program; kinds: of its float inputs."""
    return _Lowering(node, program, kinds, formats).result()


class _Lowering:
    def __init__(self, node: str, program: Program, kinds: Sequence[Kind], formats: Formats):
        self.node, self.program, self.formats = node, program, formats
        self.types: list[FixedType] = []
        for (_, t), kind in zip(program.inputs, kinds, strict=True):
            self.types.append(FixedType("int" if t.kind == "int" else kind, t.space, t.width))
        self.types += [FixedType("int", space, 1) for _, space in program.ints]
        first = len(self.types)
        self.made = {first + i: instr for i, instr in enumerate(program.instrs)}
        self.uses = Counter(a for instr in program.instrs for a in instr.args)
        self.uses.update(program.outputs)
        self.new: dict[int, int] = {i: i for i in range(first)}  # value of the program -> of the result
        self.operations: list[Instr] = []
        self.skipped = self._swallowed()
        for v, instr in self.made.items():
            if v not in self.skipped:
                self._lower(v, instr)

    def result(self) -> FixedProgram:
        p = self.program
        names = tuple(name for name, _ in p.inputs)
        outputs = tuple(self.new[o] for o in p.outputs)
        return FixedProgram(
            names, p.ints, p.params, p.spaces, tuple(self.operations), outputs, tuple(self.types)
        )

    # --- patterns ---------------------------------------------------------------------------------

    def _biased(self, instr: Instr) -> tuple[int, int] | None:
        """(product, bias) of a sum of a matrix product and a vector parameter that nothing else reads."""
        if instr.op != "add":
            return None
        for a, b in (instr.args, instr.args[::-1]):
            ops = [self.made[x].op if x in self.made else "" for x in (a, b)]
            if ops == ["matmul", "row_param"] and self.uses[a] == self.uses[b] == 1:
                return a, b
        return None

    def _gated(self, instr: Instr) -> tuple[int, int] | None:
        """(gradient, what it must be positive for) of a product with a step."""
        if instr.op != "mul":
            return None
        for a, b in (instr.args, instr.args[::-1]):
            if b in self.made and self.made[b].op == "step":
                return a, self.made[b].args[0]
        return None

    def _swallowed(self) -> set[int]:
        """Values that exist only inside a pattern."""
        gone: set[int] = set()
        gates: Counter[int] = Counter()
        for instr in self.made.values():
            if (found := self._biased(instr)) is not None:
                gone.update(found)
            elif self._gated(instr) is not None:
                gates.update(a for a in set(instr.args) if a in self.made and self.made[a].op == "step")
        return gone | {v for v, n in gates.items() if n == self.uses[v]}

    # --- one instruction --------------------------------------------------------------------------

    def _lower(self, v: int, instr: Instr) -> None:
        recipe = PRIMITIVES[instr.op].hardware
        if isinstance(recipe, str):
            raise GraphError(f"the hardware cannot compute '{instr.op}': {recipe}", node=self.node)
        if recipe is Recipe.NONE_NEEDED:
            self.new[v] = self.new[instr.args[0]]
        elif (biased := self._biased(instr)) is not None:
            product, bias = (self.made[x] for x in biased)
            self._affine(v, product.args, product.attr()["param"], bias.attr()["param"])
        elif (gated := self._gated(instr)) is not None:
            self._emit(v, "gate", gated, self._kind(gated[:1]))
        elif recipe is Recipe.SAME:
            kind = "int" if instr.op == "argmax" else self._kind(instr.args)
            self._emit(v, instr.op, instr.args, kind, **instr.attr())
        elif recipe is Recipe.ONES:
            kind = self._kind(instr.args)
            one = (self.formats.value if kind == "value" else self.formats.gradient).one
            self._emit(v, instr.op, instr.args, kind, constant=one)
        elif recipe is Recipe.CURVE:
            self._kind_is(instr.args[0], "value", f"'{instr.op}'")
            self._emit(v, "curve", instr.args, "value", curve=instr.op, frac=self.formats.value.frac)
        else:
            own: Callable[[int, Instr], None] = getattr(self, f"_{instr.op}")
            own(v, instr)

    def _kind(self, args: Sequence[int]) -> Kind:
        """The kind that all operands share."""
        kinds = {self.types[self.new[a]].kind for a in args} - {"int"}
        if len(kinds) != 1:
            raise GraphError(
                "a value and a gradient meet in a sum; the hardware keeps their binary points apart",
                node=self.node,
            )
        return kinds.pop()

    def _frac(self, a: int) -> int:
        return self.types[self.new[a]].format(self.formats).frac

    def _emit(self, v: int, op: str, args: Sequence[int], kind: Kind, **attrs: Any) -> None:
        t = self.program.types[v]
        self.operations.append(Instr(op, tuple(self.new[a] for a in args), tuple(sorted(attrs.items()))))
        self.types.append(FixedType(kind, t.space, t.width))
        self.new[v] = len(self.types) - 1

    def _affine(self, v: int, args: Sequence[int], param: str | None, bias: str | None) -> None:
        if args:
            self._kind_is(args[0], "value", "a product with a weight in the forward direction")
        space = self.program.types[v].space
        f = self.formats
        at = {"shift": f.weight.frac, "lift": f.value.frac}
        self._emit(v, "affine", args, "value", param=param, bias=bias, space=space, **at)

    def _kind_is(self, a: int, kind: Kind, where: str) -> None:
        if self.types[self.new[a]].kind != kind:
            raise GraphError(
                f"{where} takes a {kind}, found a {self.types[self.new[a]].kind}", node=self.node
            )

    def _matmul(self, v: int, instr: Instr) -> None:
        self._affine(v, instr.args, instr.attr()["param"], None)

    def _row_param(self, v: int, instr: Instr) -> None:
        self._affine(v, (), None, instr.attr()["param"])

    def _matmul_t(self, v: int, instr: Instr) -> None:
        if self.types[self.new[instr.args[0]]].kind != "gradient":
            raise GraphError(
                "the hardware cannot compute 'matmul_t': lanes multiply gradients with weights transposed, "
                f"and values with '{instr.attr()['param']}' as it is; give that product a weight of its own, "
                "or leave the node to the host",
                node=self.node,
            )
        self._emit(v, "affine_t", instr.args, "gradient", shift=self.formats.weight.frac, **instr.attr())

    def _take(self, v: int, instr: Instr) -> None:
        shift = self.formats.weight.frac - self.formats.value.frac
        self._emit(v, "take", instr.args, "value", shift=shift, **instr.attr())

    def _zeros(self, v: int, instr: Instr) -> None:
        # A gradient of zeros has its point anywhere.
        kind: Kind = "gradient" if any(t.kind == "gradient" for t in self.types) else "value"
        self._emit(v, "fill", (), kind, constant=0, **instr.attr())

    def _mul(self, v: int, instr: Instr) -> None:
        kinds = [self.types[self.new[a]].kind for a in instr.args]
        kind: Kind = "gradient" if "gradient" in kinds else "value"
        result = self.formats.gradient.frac if kind == "gradient" else self.formats.value.frac
        self._emit(v, "mul", instr.args, kind, shift=sum(map(self._frac, instr.args)) - result)

    def _scale(self, v: int, instr: Instr) -> None:
        constant, shift = mantissa(instr.attr()["factor"])
        self._emit(v, "scale", instr.args, self._kind(instr.args), constant=constant, shift=shift)

    def _shift(self, v: int, instr: Instr) -> None:
        kind = self._kind(instr.args)
        f = self.types[self.new[instr.args[0]]].format(self.formats)
        constant = int(f.quantise(instr.attr()["factor"]))
        self._emit(v, "shift", instr.args, kind, constant=constant)

    def _above(self, v: int, instr: Instr) -> None:
        # x > threshold, for integers: x > floor(threshold * 2**frac).
        threshold = instr.attr()["threshold"] * 2.0 ** self._frac(instr.args[0])
        constant = int(max(min(threshold // 1, 2**15 - 1), -(2**15)))
        self._emit(v, "above", instr.args, "int", constant=constant)

    def _to_float(self, v: int, instr: Instr) -> None:
        self._emit(v, "lift", instr.args, "value", shift=self.formats.value.frac)

    def _same_int(self, v: int, instr: Instr) -> None:
        self._emit(v, "same", instr.args, "value", constant=self.formats.value.one)


def mantissa(factor: float) -> tuple[int, int]:
    """A constant as integer of at most 18 bits and a right shift of 0 .. 31: factor ~ constant / 2**shift."""
    shift = 31
    while shift > 0 and abs(factor) * 2.0**shift > 2**17 - 1:
        shift -= 1
    constant = round(factor * 2.0**shift)
    while shift > 0 and constant % 2 == 0:
        constant, shift = constant // 2, shift - 1
    return max(min(constant, 2**17 - 1), -(2**17)), shift
