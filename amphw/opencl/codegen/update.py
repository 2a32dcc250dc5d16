"""Updates of parameters on the device, as `amphw.ir.update.UpdateRule.step` defines them.

An update is three kinds of kernels, in this order: every gradient is checked, every parameter is stepped, and
transposed copies are made again. A gradient that is not finite is noted in `faults[BAD_GRADIENT + parameter]`
(all 0 before), and then no parameter of the node is changed. A step also clears the gradient. The check notes
the largest magnitude, too (`abi.TURNS`), infinity where the gradient is not finite.

Kernels take (arena, int job, faults, buffers...) and run once: `global_size((), 1)`. The job is the numbers
of this update, `update_scalars`. Buffers, beside "p0", "p0t", "g0" and "touched0": "p0s0" and "p0s1", the
optimiser's sums; "squares0", `parts(tensor)` floats, what the check leaves for the clipping.

A table that is only looked up may be updated in its touched rows alone, where a step would leave others as
they are (`touched_only`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import dedent

import numpy as np

from amphw.ir.optimizers import OPTIMIZERS
from amphw.ir.update import UpdateRule
from amphw.opencl import abi
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.prelude import suffix_of, with_suffixes
from amphw.opencl.codegen.product_parts import signature
from amphw.opencl.codegen.tiles import indent, load, store, vector_type
from amphw.opencl.layout import Layout, copy_layout

SCALARS = ("SCALE", "DECAY", "CLIP", "TURN")
"""Floats of a job, by their names in the kernels; those of the optimiser follow (`Optimizer.numbers`).

SCALE: on the summed gradient. TURN: the word for this update's largest magnitude; a whole number.
"""

JOB = 16
"""Floats that a job has room for."""

assert len(SCALARS) + max(len(row.numbers) for row in OPTIMIZERS.values()) <= JOB

MOST_PARTS = 16
"""Work-groups of a check; each leaves one partial sum of squares."""

GROUP_FLOATS = 4096
"""Floats that one work-group goes through in a step."""


@dataclass(frozen=True)
class Tensor:
    """A parameter as its update sees it.

    touched_only: see the module. transposed: first row and number of the rows in the transposed copy.
    """

    number: int
    layout: Layout
    touched_only: bool = False
    transposed: tuple[int, int] | None = None

    @property
    def rows(self) -> int:
        """0 for a vector."""
        return self.layout.rows

    @property
    def columns(self) -> int:
        return self.layout.columns

    @property
    def floats(self) -> int:
        return self.layout.floats


def touched_only(rule: UpdateRule) -> bool:
    """Whether a step leaves rows without a gradient as they are."""
    return rule.row.memoryless and rule.weight_decay == 0.0


def parts(tensor: Tensor) -> int:
    """Floats of "squares{number}"."""
    return min(MOST_PARTS, -(-tensor.floats // GROUP_FLOATS))


def update_scalars(
    rule: UpdateRule, rows: int, updates: int, state: dict[str, float], turn: int = 0
) -> np.ndarray:
    """The job of update number `updates` (from 0), of a gradient summed over `rows` rows: up to JOB floats.

    state: the optimiser's, which moves on. turn: one more for each update that the device makes, whatever
    version it makes.
    """
    values = {
        "SCALE": 1.0 / max(rows, 1) if rule.reduce == "mean" else 1.0,
        "DECAY": rule.weight_decay,
        "CLIP": rule.clip,
        "TURN": turn % abi.TURNS,
    }
    scalars = rule.scalars(updates, state)
    own = [scalars[name] for name in rule.row.numbers]
    return np.array([*(values[name] for name in SCALARS), *own], np.float32)


def update_kernels(name: str, tensors: Sequence[Tensor], rule: UpdateRule, form: Form) -> list[abi.Kernel]:
    """All kernels of one node's update, in their order. tensors: parameters 0, 1, ... of the node."""
    return [
        *(check_kernel(f"{name}_check{t.number}", t, len(tensors), rule, form) for t in tensors),
        *(step_kernel(f"{name}_step{t.number}", t, len(tensors), rule, form) for t in tensors),
        *(transpose_kernel(f"{name}_transpose{t.number}", t, form) for t in tensors if t.transposed),
    ]


def once_kernel(
    name: str, buffers: Sequence[str], written: Sequence[str], form: Form, items: tuple[int, ...],
    body: Sequence[str], comment: str,
) -> abi.Kernel:  # fmt: skip
    """A kernel that runs once whatever rows there are; `items`: work-groups in dimensions 1 and 2."""
    head = signature(name, buffers, written, (form.lanes,))
    text = [
        f"// {comment}",
        *(line.replace("int frame", "int job") for line in head),
        "{",
        *indent(body),
        "}",
    ]
    local = (form.lanes, *(1 for _ in items))
    return abi.Kernel(name, "\n".join(text) + "\n", tuple(buffers), 0, items, 1, local, by_message=True)


# --- checking -----------------------------------------------------------------------------------------------


def check_kernel(name: str, tensor: Tensor, parameters: int, rule: UpdateRule, form: Form) -> abi.Kernel:
    """Notes whether a gradient is finite, and how large the scaled one is; for clipping, sums its squares."""
    kind, vector = vector_type(form), form.vector
    integers = f"int{vector}" if vector > 1 else "int"
    g, clipped = f"g{tensor.number}", rule.clip > 0.0
    inside = [f"const {kind} g = {load(f'{g} + at', vector, vector)};", "most = fmax(most, fabs(g));"]
    # All bits of the exponent are set in infinities and NaNs, and in nothing else.
    inside.append(f"bad |= (as_{integers}(g) & 0x7f800000) == 0x7f800000;")
    inside += ["squares += (g * scale) * (g * scale);"] if clipped else []
    body = [f"{integers} bad = 0;", f"{kind} most = 0.0f;", _scalar("SCALE", "scale")]
    body += [f"{kind} squares = 0.0f;"] if clipped else []
    body += _over_vectors(tensor, form, parts(tensor), inside, [])
    lanes = [f".s{k:x}" for k in range(vector)] if vector > 1 else [""]
    body += [
        f"const int nonfinite = {' | '.join(f'bad{lane}' for lane in lanes)};",
        f"if (nonfinite) faults[BAD_GRADIENT + {tensor.number}] = 1;",
        f"float largest = most{lanes[0]};",
        *(f"largest = fmax(largest, most{lane});" for lane in lanes[1:]),
        "largest = nonfinite ? INFINITY : largest * scale;",
        f"atomic_max({_turn(parameters, 0)}, as_int(largest));",
    ]
    buffers = [g] + ([f"touched{tensor.number}"] if tensor.touched_only else [])
    written = []
    if clipped:
        written = [f"squares{tensor.number}"]
        total = " + ".join(f"squares{lane}" for lane in lanes)
        body += _left_by_group(total, f"{written[0]}[get_global_id(1)]", form)
    comment = f"whether {g} is finite" + (", and its squares" if clipped else "")
    return once_kernel(name, [*buffers, *written], written, form, (parts(tensor),), body, comment)


def _turn(parameters: int, after: int) -> str:
    """Where the largest magnitude of the gradient of this update lies, or of one that comes so much later."""
    turn = f"((int)arena[job + {SCALARS.index('TURN')}] + {after}) % TURNS"
    return f"(volatile __global int*)faults + BAD_GRADIENT + {parameters} + {turn}"


def _left_by_group(value: str, to: str, form: Form) -> list[str]:
    """The sum over a work-group's items, in their order."""
    if form.lanes == 1:
        return [f"{to} = {value};"]
    return [
        f"__local float shared[{form.lanes}];",
        f"shared[get_local_id(0)] = {value};",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "if (get_local_id(0) == 0) {",
        "    float total = 0.0f;",
        f"    for (int i = 0; i < {form.lanes}; i++) total += shared[i];",
        f"    {to} = total;",
        "}",
    ]


def _scalar(name: str, variable: str) -> str:
    return f"const float {variable} = arena[job + {SCALARS.index(name)}];"


def _over_vectors(
    tensor: Tensor, form: Form, groups: int, inside: Sequence[str], after_row: Sequence[str]
) -> list[str]:
    """A loop over this work-group's share of a tensor: `inside` for the vector that begins at `at`.

    Of touched rows alone, each the work of one item, with `after_row` behind it.
    """
    vector, lanes = form.vector, form.lanes
    lane = "get_local_id(0)" if lanes > 1 else "0"
    if not tensor.touched_only:
        count = tensor.floats // vector
        share = -(-count // groups)
        return [
            f"const int begin = get_global_id(1) * {share};",
            f"const int end = begin + {share} < {count} ? begin + {share} : {count};",
            f"for (int i = begin + {lane}; i < end; i += {lanes}) {{",
            f"    const int at = i * {vector};",
            *indent(inside),
            "}",
        ]
    share, stride = -(-tensor.rows // groups), abi.stride(tensor.columns)
    return [
        f"const int begin = get_global_id(1) * {share};",
        f"const int end = begin + {share} < {tensor.rows} ? begin + {share} : {tensor.rows};",
        f"for (int row = begin + {lane}; row < end; row += {lanes}) {{",
        f"    if (!touched{tensor.number}[row]) continue;",
        f"    for (int at = row * {stride}; at < (row + 1) * {stride}; at += {vector}) {{",
        *indent(inside, 2),
        "    }",
        *indent(after_row),
        "}",
    ]


# --- stepping -----------------------------------------------------------------------------------------------


def step_kernel(name: str, tensor: Tensor, parameters: int, rule: UpdateRule, form: Form) -> abi.Kernel:
    """One step of the rule's optimiser, unless the gradient of any of the node's parameters is not finite."""
    n, vector, kind = tensor.number, form.vector, vector_type(form)
    sums = [f"p{n}s{k}" for k in range(rule.slots())]
    buffers = [f"p{n}", f"g{n}", *sums]
    buffers += [f"touched{n}"] if tensor.touched_only else []
    written = list(buffers)
    body = [
        f"for (int i = 0; i < {parameters}; i++) {{",
        "    if (faults[BAD_GRADIENT + i]) return;",
        "}",
        *(f"const float {name} = arena[job + {k}];" for k, name in enumerate(rule.row.numbers, len(SCALARS))),
    ]
    if n == 0:  # one item of one kernel makes the next update's word 0
        first = "get_global_id(1) == 0 && get_local_id(0) == 0"
        body.append(f"if ({first}) atomic_xchg({_turn(parameters, 1)}, 0);")
    if rule.clip > 0.0:
        buffers.append(f"squares{n}")
        body += [
            "float scale = arena[job];  // SCALE",
            _scalar("CLIP", "clip"),
            "float squares = 0.0f;",
            f"for (int i = 0; i < {parts(tensor)}; i++) squares += squares{n}[i];",
            "const float norm = sqrt(squares);",
            "if (norm > clip) scale *= clip / norm;",
        ]
    else:
        body.append(_scalar("SCALE", "scale"))
    inside = [
        f"const {kind} w = {load(f'p{n} + at', vector, vector)};",
        f"{kind} g = {load(f'g{n} + at', vector, vector)} * scale;",
        *store(f"g{n} + at", f"({kind})(0.0f)", vector, vector),
    ]
    if rule.weight_decay > 0.0:
        body.append(_scalar("DECAY", "decay"))
        inside.append("g += decay * w;")
    inside += [*_change(rule, n, form), *store(f"p{n} + at", "w - rate * change", vector, vector)]
    groups = -(-tensor.floats // (GROUP_FLOATS if form.lanes == 1 else 8 * form.lanes * vector))
    if tensor.touched_only:
        groups = min(groups, tensor.rows)
    body += [*_over_vectors(tensor, form, groups, inside, [f"touched{n}[row] = 0;"])]
    return once_kernel(name, buffers, written, form, (groups,), body, f"p{n}: one step of {rule.optimizer}")


def _change(rule: UpdateRule, n: int, form: Form) -> list[str]:
    """Statements that leave in `change` what an optimiser makes of the gradient g."""
    kind, vector, slots = vector_type(form), form.vector, range(rule.slots())
    names = [f"slot{k}" for k in slots]
    loads = [f"{kind} {names[k]} = {load(f'p{n}s{k} + at', vector, vector)};" for k in slots]
    text = with_suffixes(dedent(rule.row.kernel.body).strip(), suffix_of(form))
    change = re.sub(r"^return ", f"const {kind} change = ", text, flags=re.MULTILINE)
    stores = [line for k in slots for line in store(f"p{n}s{k} + at", names[k], vector, vector)]
    return [*loads, *change.splitlines(), *stores]


# --- transposed copies --------------------------------------------------------------------------------------


def transpose_kernel(name: str, tensor: Tensor, form: Form) -> abi.Kernel:
    """p0t [columns, rows] from the rows of p0 that it is of, in squares of a vector's size."""
    assert tensor.transposed is not None
    n, vector, kind = tensor.number, form.vector, vector_type(form)
    first, rows = tensor.transposed
    source, copy = tensor.layout, copy_layout(tensor.columns, rows, form)
    across, down = abi.rounded(tensor.columns, 16), abi.stride(rows)
    read = f"p{n} + {source.place('column')} + ({first} + row + i) * {source.step}"
    body = [f"const int column = (get_group_id(1) * {form.lanes} + get_local_id(0)) * {vector};"]
    items = -(-across // (vector * form.lanes))
    if items * vector * form.lanes > across:
        body.append(f"if (column >= {across}) return;")
    body += [
        f"const int row = get_global_id(2) * {vector};",
        f"{kind} v[{vector}];",
        "#pragma unroll",
        f"for (int i = 0; i < {vector}; i++) {{",
        f"    v[i] = row + i < {rows} ? {load(read, vector, vector)} : ({kind})(0.0f);",
        "}",
    ]
    if vector > 1:
        half, rounds = vector // 2, vector.bit_length() - 1
        body += [
            "// Each round shuffles the vectors like two halves of a deck of cards. After all of them the",
            "// numbers of rows and columns have changed places.",
            "#pragma unroll",
            f"for (int round = 0; round < {rounds}; round++) {{",
            f"    {kind} merged[{vector}];",
            "    #pragma unroll",
            f"    for (int i = 0; i < {half}; i++) {{",
            f"        merged[2 * i].even = v[i].lo, merged[2 * i].odd = v[i + {half}].lo;",
            f"        merged[2 * i + 1].even = v[i].hi, merged[2 * i + 1].odd = v[i + {half}].hi;",
            "    }",
            "    #pragma unroll",
            f"    for (int i = 0; i < {vector}; i++) v[i] = merged[i];",
            "}",
        ]
    body += [
        "#pragma unroll",
        f"for (int i = 0; i < {vector}; i++) {{",
        *indent(store(f"p{n}t + {copy.place('row')} + (column + i) * {copy.step}", "v[i]", vector, vector)),
        "}",
    ]
    comment = f"p{n}t = p{n}[{first}:{first + rows}]'"
    return once_kernel(name, [f"p{n}", f"p{n}t"], [f"p{n}t"], form, (items, down // vector), body, comment)
