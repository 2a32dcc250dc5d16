"""What all kernels of a program share: the ABI's names, vectors of floats, and functions of them.

Products and sums are plain expressions and vectors are read through pointers: pocl calls `fma`, `vload`,
`exp` and their like as functions, which costs ten times as much. Functions exist for vectors (`exp_v`) and
for single floats (`exp_s`); what they compute is written in `amphw.ir.primitives`.
"""

from __future__ import annotations

import re

from amphw.engine.tiles.operations import TEXTS
from amphw.ir.primitives.kernel_text import GIVEN, HELPERS, TYPES, sorted_by_calls
from amphw.opencl import abi
from amphw.opencl.codegen.forms import Form

DIGITS = "0123456789abcdef"
"""Components of a vector: v.s0 to v.sf."""


def prelude(form: Form) -> str:
    """The text before all kernels of a program for a form."""
    names = ["MAX_SPACES", "MESSAGES", "ROWS", "STARTS", "TABLES", "LOG_ROWS", "LOG_BUFFERS"]
    names += ["FAULT", "FAULT_ROW", "BAD_GRADIENT", "TURNS"]
    lines = [f"#define {name} {getattr(abi, name)}" for name in names]
    lines += [f"#define FAULT_{text.upper()} {number}" for number, text in abi.FAULTS.items()]
    parts = [
        "#pragma OPENCL FP_CONTRACT ON\n\n// amphw/opencl/abi.py says what these mean.",
        "\n".join(lines),
    ]
    parts += [_FRAME, _functions(1)]
    if form.vector > 1:
        parts += [_vectors(form.vector), _functions(form.vector)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def store(pointer: str, value: str, count: int, vector: int) -> list[str]:
    """Statements that write the first `count` components of a vector (of size 1: a float)."""
    if vector == 1:
        return [f"*({pointer}) = {value};"]
    if count == vector:
        return [f"STORE({pointer}, {value});"]
    out, done = [], 0
    for size in (8, 4, 2, 1):
        if count & size:
            part = f"({value}).s{DIGITS[done : done + size]}"
            at = f"({pointer}) + {done}" if done else pointer
            out.append(f"STORE{size}({at}, {part});")
            done += size
    return out


_FRAME = """
#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define MOST(a, b) ((a) > (b) ? (a) : (b))

// The frame's header, and what it leads to. INTS takes the number of bases of the code plus that of the slot.
#define HEADER ((__global const int*)arena + frame)
#define ROWS_OF(space) (HEADER[ROWS + (space)])
#define STARTS_OF(space) ((__global const int*)arena + HEADER[STARTS + (space)])
#define TABLE(base) ((__global const int*)arena + HEADER[TABLES + (base)])
#define ROW(base, row) (arena + TABLE(base)[row])
#define INTS(number) ((__global long*)(arena + HEADER[TABLES + (number)]))

// Only the first fault is kept.
static void fail(__global int* faults, int fault, int row)
{
    if (atomic_cmpxchg((volatile __global int*)faults + FAULT, 0, fault) == 0) faults[FAULT_ROW] = row;
}

// The index if it is one of 0 .. end - 1, else 0 and a fault.
static int checked(long index, int end, __global int* faults, int fault, int row)
{
    if (index >= 0 && index < end) return (int)index;
    fail(faults, fault, row);
    return 0;
}

// Asks for a place that will be written soon; where a compiler cannot say so, that is all that is lost.
#if defined(__has_builtin)
#if __has_builtin(__builtin_prefetch)
#define ASK(p) __builtin_prefetch((const void*)(ulong)(p), 1)
#endif
#endif
#ifndef ASK
#define ASK(p)
#endif

typedef float2 __attribute__((aligned(4))) FLOAT2;
typedef float4 __attribute__((aligned(4))) FLOAT4;
typedef float8 __attribute__((aligned(4))) FLOAT8;
#define STORE1(p, v) (*(p) = (v))
#define STORE2(p, v) (*(__global FLOAT2*)(p) = (v))
#define STORE4(p, v) (*(__global FLOAT4*)(p) = (v))
#define STORE8(p, v) (*(__global FLOAT8*)(p) = (v))
"""


def _vectors(n: int) -> str:
    """Vectors of n floats, at any address in memory."""
    halves = [f"    const float{n // 2} v{n // 2} = v.lo + v.hi;"]
    size = n // 2
    while size > 2:
        halves.append(f"    const float{size // 2} v{size // 2} = v{size}.lo + v{size}.hi;")
        size //= 2
    some = "\n".join(f"    if (count > {k}) p[{k}] = v.s{DIGITS[k]};" for k in range(n - 1))
    return f"""
#define VECTOR {n}
typedef float{n} V;
typedef float{n} __attribute__((aligned(4))) VU;
#define LOAD(p) (*(__global const VU*)(p))
#define STORE(p, v) (*(__global VU*)(p) = (v))

static float sum_v(V v)
{{
{chr(10).join(halves)}
    return v2.x + v2.y;
}}

// The first `count` components, fewer than all.
static void store_some(__global float* p, V v, int count)
{{
{some}
}}
"""


def _functions(n: int) -> str:
    """The functions for vectors of n floats."""
    size = "" if n == 1 else str(n)
    lanes = "0" if n == 1 else f"((int{n})({', '.join(map(str, range(n)))}))"
    written = (f.written(_translated, "static") for f in _USED)
    text = "\n".join([_GIVEN, *written, _PLACE, _RANDOM])
    names = {"T": f"float{size}", "I": f"int{size}", "U": f"uint{size}", "S": "_s" if n == 1 else "_v"}
    for short, name in names.items():
        text = text.replace(f"${short}", name)
    return f"#define LANES{names['S']} {lanes}\n{text}"


_USED = sorted_by_calls([*HELPERS, *(f for f in TEXTS.values() if not f.text.is_expression)])
"""Functions; operations that are an expression are written where they stand."""

_CALLED = re.compile(rf"\b({'|'.join([*GIVEN, *(f.name for f in _USED)])})\(")


def suffix_of(form: Form) -> str:
    """Of the functions of a form's vectors."""
    return "_s" if form.vector == 1 else "_v"


def with_suffixes(text: str, suffix: str) -> str:
    """An operation's text with the names of the functions that it calls as they are in a prelude."""
    return _CALLED.sub(rf"\1{suffix}(", text)


def _translated(text: str) -> str:
    for name, short in zip(TYPES, "TIU", strict=True):
        text = re.sub(rf"\b{name}\b", f"${short}", text)
    for f in _USED:  # its definition
        text = re.sub(rf"^static (\S+) {f.name}\(", rf"static \1 {f.name}$S(", text)
    return with_suffixes(text, "$S")


_GIVEN = """
#define all$S(x) (($T)(x))
#define as_Real$S as_$T
#define as_Int$S as_$I
#define as_Word$S as_$U
#define square_root$S sqrt

// p * 2^n, in two steps, since 2^128 and 2^-150 are not floats themselves.
static $T scaled$S($T p, $I n)
{
    const $I half_n = n >> 1, rest = n - half_n;
    return p * as_$T(as_$U(half_n + 127) << 23) * as_$T(as_$U(rest + 127) << 23);
}
"""
"""What the operations' texts take for granted (`kernel_text.GIVEN`)."""

_PLACE = """
// `placed` in column `index`, 0 in all others; `column` is that of the first component.
static $T place$S(float placed, int index, int column)
{
    return LANES$S + column == index ? ($T)(placed) : ($T)(0.0f);
}
"""

_RANDOM = """
// Philox-2x32-10, bit for bit as in amphw/ir/rng.py: the low words of encrypted counters (low, high).
static $U philox$S($U low, $U high, uint key)
{
    for (int round = 0; round < 10; round++, key += 0x9E3779B9u) {
        // The high words of the products with 0xD256D193, from halves: there are no vectors of long products.
        const $U a = low & 0xffffu, b = low >> 16;
        const $U one = a * 0xD193u, two = b * 0xD193u, three = a * 0xD256u;
        const $U carry = ((one >> 16) + (two & 0xffffu) + (three & 0xffffu)) >> 16;
        const $U product_high = b * 0xD256u + (two >> 16) + (three >> 16) + carry;
        const $U product_low = low * 0xD256D193u;
        low = product_high ^ key ^ high;
        high = product_low;
    }
    return low;
}

// A row's numbers from `column` on, in [0, 1).
static $T drawn$S(uint word, uint seed, int column)
{
    const $U columns = as_$U(LANES$S + column);
    return convert_$T(philox$S(columns, ($U)(word), seed ^ 0x5BD1E995u) >> 8) * 0x1p-24f;
}

// A row's mask from `column` on, 1 where the element is kept: where the 24 bits drawn reach `least`, which is
// the rate times 2^24. `word` is made of the row's integers.
static $T keep$S(uint word, uint seed, int column, uint least)
{
    const $U columns = as_$U(LANES$S + column);
    const $U drawn = philox$S(columns, ($U)(word), seed ^ 0x5BD1E995u) >> 8;
    return drawn >= least ? ($T)(1.0f) : ($T)(0.0f);
}
"""
