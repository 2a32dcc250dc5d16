"""Derivatives of programs.

fwd -> (y, residuals); bwd(dy, residuals, theta) -> (dx, dz); grad(a, dz) -> dtheta.

The backward direction is a program of the same primitives, derived one by one, so an executor gets it for
free. Residuals are the forward values that it reads: they are fixed when the forward message passes,
whereas the parameters it reads are the current ones, which may have been updated since. Gradients of
parameters are not computed by the backward program. It yields terms `(a, dz)`; `accumulate` turns the rows of
many messages into a gradient at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from amphw.ir.errors import ProgramError
from amphw.ir.primitives import PRIMITIVES, ValueType
from amphw.ir.primitives.base import Product, product
from amphw.ir.program import Builder, Instr, Program, Value


@dataclass(frozen=True)
class GradientTerm:
    """One contribution to a parameter's gradient, as indices into the backward program's outputs.

    kind "matmul": a.T @ dz; "take": rows dz added at index a; "sum": column sums of dz (a is None).
    """

    param: str
    kind: str
    a: int | None
    dz: int


@dataclass(frozen=True)
class Derivative:
    """forward: outputs are the program's outputs, then `len(residuals)` forward values.

    residuals: for each, ("input", k), ("output", k) or ("value", k-th further output of `forward`), so an
    executor that keeps inputs and outputs anyway need not store them twice. backward: inputs are one gradient
    for each float output, then the residuals; outputs are one gradient for each input in `wrt` (zeros where
    nothing depends on it), then what the terms name.
    """

    forward: Program
    residuals: tuple[tuple[str, int], ...]
    backward: Program
    wrt: tuple[int, ...]
    terms: tuple[GradientTerm, ...]
    float_outputs: tuple[int, ...]


class Tape:
    """What a primitive's vjp may do: read forward values, emit backward primitives, record gradient terms."""

    def __init__(self, program: Program):
        self.program = program
        self.builder = Builder(program.params)
        self.builder.spaces.update(dict(program.spaces))
        self.residual_ids: list[int] = []
        self._seen: dict[int, Value] = {}
        self.terms: list[tuple[str, str, Value | None, Value]] = []

    def type_of(self, forward_id: int) -> ValueType:
        return self.program.types[forward_id]

    def forward(self, forward_id: int) -> Value:
        """A forward value; state expressions are read again, windows of an image cut out again, and
        everything else becomes a residual."""
        if forward_id not in self._seen:
            n_inputs = len(self.program.inputs)
            if n_inputs <= forward_id < n_inputs + len(self.program.ints):
                e, space = self.program.ints[forward_id - n_inputs]
                self._seen[forward_id] = self.builder.integer(e, space)
            elif (instr := self._cut_out(forward_id)) is not None:
                self._seen[forward_id] = self.emit(
                    instr.op, [self.forward(a) for a in instr.args], **instr.attr()
                )
            else:
                self._seen[forward_id] = self.builder.input(
                    f"r{len(self.residual_ids)}", self.type_of(forward_id)
                )
                self.residual_ids.append(forward_id)
        return self._seen[forward_id]

    def _cut_out(self, forward_id: int) -> Instr | None:
        """What made a value of windows alone: kept, they would take several times the room of the image."""
        first = len(self.program.inputs) + len(self.program.ints)
        if forward_id < first:
            return None
        instr = self.program.instrs[forward_id - first]
        again = instr.op in ("slice", "maximum") and all(self._cut_out(a) for a in instr.args)
        return instr if instr.op == "patches" or again else None

    def emit(self, op: str, args: Sequence[Value], **attrs: Any) -> Value:
        return self.builder.emit(op, args, **attrs)

    def gradient(self, param: str, kind: str, a: Value | None, dz: Value) -> None:
        self.terms.append((param, kind, a, dz))


def differentiate(program: Program, wrt: Sequence[int] | None = None) -> Derivative:
    """Derive the backward program; `wrt`: the inputs whose gradient is wanted (default: all float ones)."""
    if wrt is None:
        wrt = [i for i, (_, t) in enumerate(program.inputs) if t.kind == "float"]
    float_outputs = [k for k, t in enumerate(program.outputs_types) if t.kind == "float"]
    tape = Tape(program)
    gradients: dict[int, Value] = {}
    for k in float_outputs:
        dy = tape.builder.input(f"dy{k}", program.outputs_types[k])
        _add(gradients, program.outputs[k], dy)
    active = _reaches(program, set(wrt))
    first = len(program.inputs) + len(program.ints)
    for offset in range(len(program.instrs) - 1, -1, -1):
        y, instr = first + offset, program.instrs[offset]
        if y not in gradients or y not in active:
            continue
        vjp = PRIMITIVES[instr.op].vjp
        for a, d in zip(instr.args, vjp(tape, instr.attr(), list(instr.args), y, gradients[y]), strict=True):
            if d is not None and a in active:
                _add(gradients, a, d)
    return _assemble(program, tape, gradients, wrt, float_outputs)


def _reaches(program: Program, wrt: set[int]) -> set[int]:
    """Values that depend on a wanted input or on a parameter: only these need a gradient."""
    active = set(wrt)
    first = len(program.inputs) + len(program.ints)
    for offset, instr in enumerate(program.instrs):
        if "param" in dict(instr.attrs) or any(a in active for a in instr.args):
            active.add(first + offset)
    return active


def _add(gradients: dict[int, Value], id: int, d: Value) -> None:
    gradients[id] = gradients[id] + d if id in gradients else d


def _assemble(
    program: Program, tape: Tape, gradients: dict[int, Value], wrt: Sequence[int], float_outputs: list[int]
) -> Derivative:
    outputs: list[Value] = []
    for i in wrt:
        t = program.inputs[i][1]
        outputs.append(gradients[i] if i in gradients else _zeros(tape, t))
    terms = []
    for param, kind, a, dz in tape.terms:
        at = None
        if a is not None:
            outputs.append(a)
            at = len(outputs) - 1
        outputs.append(dz)
        terms.append(GradientTerm(param, kind, at, len(outputs) - 1))
    backward = tape.builder.build(outputs)
    backward = replace(backward, params=program.params)
    # A vjp asks for more than is needed where only one operand wants a gradient: drop those inputs.
    first = len(float_outputs)
    read = {a for i in backward.instrs for a in i.args} | set(backward.outputs)
    unread = [first + k for k in range(len(tape.residual_ids)) if first + k not in read]
    backward = _without_inputs(backward, unread)
    extra: list[int] = []
    residuals: list[tuple[str, int]] = []
    for id in (r for k, r in enumerate(tape.residual_ids) if first + k not in unread):
        if id < len(program.inputs):
            residuals.append(("input", id))
        elif id in program.outputs:
            residuals.append(("output", program.outputs.index(id)))
        else:
            residuals.append(("value", len(extra)))
            extra.append(id)
    forward = replace(program, outputs=program.outputs + tuple(extra))
    return Derivative(forward, tuple(residuals), backward, tuple(wrt), tuple(terms), tuple(float_outputs))


def _without_inputs(program: Program, gone: Sequence[int]) -> Program:
    """The program without inputs that nothing reads."""
    kept = [i for i in range(len(program.types)) if i not in set(gone)]
    new = {old: i for i, old in enumerate(kept)}
    return replace(
        program,
        inputs=tuple(x for i, x in enumerate(program.inputs) if i in new),
        instrs=tuple(replace(i, args=tuple(new[a] for a in i.args)) for i in program.instrs),
        outputs=tuple(new[o] for o in program.outputs),
        types=tuple(program.types[i] for i in kept),
    )


def _zeros(tape: Tape, t: ValueType) -> Value:
    return tape.builder.emit("zeros", [], space=t.space, width=t.width)


def inference(program: Program) -> Program:
    """The program as it runs in inference: dropout is the identity."""
    first = len(program.inputs) + len(program.ints)
    new = {i: i for i in range(first)}  # operands keep their places, read or not
    instrs, types = [], list(program.types[:first])
    for offset, instr in enumerate(program.instrs):
        args = tuple(new[a] for a in instr.args)
        if instr.op == "dropout":
            new[first + offset] = args[0]
            continue
        new[first + offset] = len(types)
        types.append(program.types[first + offset])
        instrs.append(replace(instr, args=args))
    outputs = tuple(new[o] for o in program.outputs)
    return replace(program, instrs=tuple(instrs), outputs=outputs, types=tuple(types))


FEW_ROWS = 64
"""Rows of a table up to which a product with one-hot rows is the fastest way to add to it."""


def add_rows(table: np.ndarray, index: np.ndarray, rows: np.ndarray) -> None:
    """table[index[i]] += rows[i] for all i; an index may occur often.

    Faster than `np.add.at`, ten times so for small tables.
    """
    if len(table) <= FEW_ROWS:
        chosen = np.zeros((len(index), len(table)), dtype=table.dtype)
        chosen[np.arange(len(index)), index] = 1
        table += product(chosen.T, rows)
    elif len(index):
        order = np.argsort(index, kind="stable")
        ordered = index[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        table[ordered[starts]] += np.add.reduceat(rows[order], starts, axis=0)


def accumulate(
    kind: str, gradient: np.ndarray, a: np.ndarray | None, dz: np.ndarray, product: Product = product
) -> None:
    """Add the gradient of the logged rows in place. a: [rows, din] or [rows]; dz: [rows, dout]. product: how
    a matrix's gradient is made of the two."""
    if kind == "matmul":
        assert a is not None
        gradient += product(a.T, dz)
    elif kind == "sum":
        gradient += dz.sum(axis=0)
    elif kind == "take":
        assert a is not None
        add_rows(gradient, a, dz)
    else:
        raise ProgramError(f"unknown kind of gradient term '{kind}'")


def accumulate_terms(
    terms: Sequence[GradientTerm],
    outputs: Sequence[np.ndarray],
    gradients: Mapping[str, np.ndarray],
    product: Product = product,
) -> None:
    """Add what a frame contributes to each parameter's gradient, in place. outputs: of the backward program.
    product: as of `accumulate`.

    What it contributes to one parameter is added at once, so that a replay, which keeps a frame's share
    apart, makes the same sums.
    """
    count = Counter(term.param for term in terms)
    shares = {name: np.zeros_like(gradients[name]) for name, n in count.items() if n > 1}
    for term in terms:
        into = shares.get(term.param, gradients[term.param])
        accumulate(term.kind, into, None if term.a is None else outputs[term.a], outputs[term.dz], product)
    for name, share in shares.items():
        gradients[name][...] += share
