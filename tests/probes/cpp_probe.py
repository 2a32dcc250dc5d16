"""A lowering of programs, state expressions and key spaces to C++, small enough to read in one sitting.

It covers the space "rows" (one loop over rows) and shows that nothing in the definitions resists
compilation: a real generator tiles and vectorises, this one only has to be right.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

from amphw.ir.expr import Attr, Const, Expr, Field, Op, Table, fields_of
from amphw.ir.program import Instr, Program
from amphw.ir.state import StateType

PRELUDE = """#include <algorithm>
#include <cmath>
#include <cstdint>
typedef int64_t i64;
static i64 floor_div(i64 a, i64 b) { i64 q = a / b; return q * b != a && (a < 0) != (b < 0) ? q - 1 : q; }
static i64 floor_mod(i64 a, i64 b) { return a - floor_div(a, b) * b; }
static i64 hash(i64 a, i64 seed) {
  uint64_t m = 0xFFFFFFFF, h = ((uint64_t)a + (uint64_t)seed * 0x9E3779B9) & m;
  h ^= h >> 16; h = h * 0x85EBCA6B & m;
  h ^= h >> 13; h = h * 0xC2B2AE35 & m;
  return (i64)(h ^ h >> 16);
}
"""

# --- state expressions --------------------------------------------------------------------------


class Names:
    """Where an expression finds its operands: a C++ text for each field, positions of attributes, tables."""

    def __init__(self, fields: dict[str, str], attrs: Sequence[str], tables: dict[str, int]):
        """tables: name -> number of dimensions. A table arrives as its shape followed by its entries."""
        self.fields, self.attrs, self.tables = fields, list(attrs), tables
        self.number = {name: i for i, name in enumerate(tables)}

    def at(self, fields: dict[str, str]) -> Names:
        return Names(fields, self.attrs, self.tables)


def expression(e: Expr, names: Names) -> str:
    if isinstance(e, Const):
        return f"i64({e.value})"
    if isinstance(e, Field):
        return names.fields[e.name]
    if isinstance(e, Attr):
        return f"attrs[{names.attrs.index(e.name)}]"
    if isinstance(e, Table):
        shape = f"tables[{names.number[e.name]}]"
        index = "i64(0)"
        for d, i in enumerate(e.index):
            index = f"({index} * {shape}[{d}] + {expression(i, names)})"
        return f"{shape}[{len(e.index)} + {index}]"
    assert isinstance(e, Op)
    a = [expression(x, names) for x in e.args]
    calls = {
        "//": "floor_div",
        "%": "floor_mod",
        "min": "std::min<i64>",
        "max": "std::max<i64>",
        "hash": "hash",
    }
    if e.op == "where":  # like ours, it evaluates only the branch that it takes
        return f"({a[0]} ? {a[1]} : {a[2]})"
    if e.op in calls:
        return f"{calls[e.op]}({a[0]}, {a[1]})"
    return f"i64({a[0]} {e.op} {a[1]})"


def expression_function(name: str, e: Expr, names: Names) -> str:
    return (
        f'extern "C" i64 {name}(const i64* fields, const i64* attrs, const i64* const* tables) '
        f"{{ return {expression(e, names)}; }}\n"
    )


# --- key spaces ---------------------------------------------------------------------------------


def address_functions(name: str, state: StateType, names: Names) -> str:
    """`name_fill` makes the prefix sums of ragged fields -> number of states; `name` is the dense address.

    A field whose extent reads no other field needs no prefix sums: its address is `outer * extent + value`.
    prefix[d] has room for one entry for each state of the fields before field d.
    """
    local = names.at({f.name: f"f{d}" for d, f in enumerate(state.fields)})
    depth = len(state.fields)
    fill = [f"i64 {', '.join(f'n{d} = 0' for d in range(depth + 1))};"]
    for d, f in enumerate(state.fields):
        fill.append(
            f"{{ if (prefix[{d}]) prefix[{d}][n{d}] = n{d + 1}; i64 x{d} = {expression(f.extent, local)};"
        )
        fill.append(f"for (i64 f{d} = 0; f{d} < x{d}; ++f{d}) {{")
    fill.append(f"++n{depth};")
    for d in reversed(range(depth)):
        fill.append(f"}} ++n{d}; }}")
    fill.append(f"return n{depth};")
    given = names.at({f.name: f"fields[{d}]" for d, f in enumerate(state.fields)})
    steps = [
        f"at = prefix[{d}][at] + fields[{d}];"
        if fields_of(f.extent)
        else f"at = at * {expression(f.extent, given)} + fields[{d}];"
        for d, f in enumerate(state.fields)
    ]
    common = "const i64* attrs, const i64* const* tables, i64* const* prefix"
    return (
        f'extern "C" i64 {name}_fill({common}) {{\n' + "\n".join(fill) + "\n}\n"
        f'extern "C" i64 {name}(const i64* fields, {common}) {{ i64 at = 0; {" ".join(steps)} return at; }}\n'
    )


# --- programs -----------------------------------------------------------------------------------


_SCALAR = {  # every column alike; {0}, {1}: operands, {f}: the factor
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "sigmoid": "1.0f / (1.0f + std::exp(-{0}))",
    "tanh": "std::tanh({0})",
    "exp": "std::exp({0})",
    "relu": "{0} > 0 ? {0} : 0.0f",
    "step": "{0} > 0 ? 1.0f : 0.0f",
    "scale": "{0} * {f}",
    "shift": "{0} + {f}",
    "stop_gradient": "{0}",
}


def _instruction(program: Program, out: int, instr: Instr) -> str:
    width, at, a = program.types[out].width, instr.attr(), instr.args
    arg = [f"v{i}" for i in a]
    wide = [program.types[i].width for i in a]
    loop = f"for (int j = 0; j < {width}; ++j) v{out}[j] = "
    op = instr.op
    weight = f"params[{[p.name for p in program.params].index(at['param'])}]" if "param" in at else ""
    if op in _SCALAR:
        factor = f"{float(at.get('factor', 0.0))!r}f"
        return loop + _SCALAR[op].format(*(f"{x}[j]" for x in arg), f=factor) + ";"
    if op == "concat":
        starts = [sum(wide[:k]) for k in range(len(a))]
        return " ".join(
            f"std::copy({x}, {x} + {w}, v{out} + {s});" for x, w, s in zip(arg, wide, starts, strict=True)
        )
    if op == "slice":
        return f"std::copy({arg[0]} + {at['start']}, {arg[0]} + {at['start'] + width}, v{out});"
    if op == "pad":
        fill = f"std::fill(v{out}, v{out} + {width}, 0.0f);"
        return f"{fill} std::copy({arg[0]}, {arg[0]} + {wide[0]}, v{out} + {at['start']});"
    if op in {"zeros", "sum_cols"}:
        fill = f"std::fill(v{out}, v{out} + {width}, 0.0f);"
        return fill + (f" for (int i = 0; i < {wide[0]}; ++i) v{out}[0] += {arg[0]}[i];" if a else "")
    if op == "spread_cols":
        return loop + f"{arg[0]}[0];"
    if op == "row_param":
        return loop + f"{weight}[j];"
    if op == "take":
        return loop + f"{weight}[{arg[0]}[0] * {width} + j];"
    if op in {"matmul", "matmul_t"}:
        entry = f"i * {width} + j" if op == "matmul" else f"j * {wide[0]} + i"
        inner = f"for (int i = 0; i < {wide[0]}; ++i) s += {arg[0]}[i] * {weight}[{entry}]; v{out}[j] = s;"
        return f"for (int j = 0; j < {width}; ++j) {{ float s = 0; {inner} }}"
    raise NotImplementedError(f"the probe does not lower '{op}'")


def program_function(name: str, program: Program) -> str:
    """One row loop; values are local arrays. operands: inputs, then integers, in the program's order."""
    if any(t.space != "rows" for t in program.types):
        raise NotImplementedError("the probe lowers only programs in the space 'rows'")
    n_operands = len(program.inputs) + len(program.ints)
    body = []
    for i, t in enumerate(program.types):
        kind = "float" if t.kind == "float" else "i64"
        if i < n_operands:
            body.append(f"const {kind}* v{i} = (const {kind}*)operands[{i}] + r * {t.width};")
        else:
            body.append(f"{kind} v{i}[{t.width}]; {_instruction(program, i, program.instrs[i - n_operands])}")
    for k, o in enumerate(program.outputs):
        t = program.types[o]
        kind = "float" if t.kind == "float" else "i64"
        body.append(f"std::copy(v{o}, v{o} + {t.width}, ({kind}*)outputs[{k}] + r * {t.width});")
    head = f"{name}(i64 rows, const void* const* operands, const float* const* params, void* const* outputs)"
    return f'extern "C" void {head} {{ for (i64 r = 0; r < rows; ++r) {{\n' + "\n".join(body) + "\n} }\n"


def compile_library(functions: Sequence[str], folder: Path, compiler: str = "g++") -> ctypes.CDLL:
    """Compile and load; raises subprocess.CalledProcessError with the compiler's words in `stderr`."""
    source, library = folder / "probe.cpp", folder / "probe.so"
    source.write_text(PRELUDE + "".join(functions))
    command = [compiler, "-std=c++17", "-O2", "-Wall", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return ctypes.CDLL(str(library))
