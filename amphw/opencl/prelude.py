"""What all kernels of a program share: the ABI's names, vectors of floats, and functions of them.

Products and sums are plain expressions and vectors are read through pointers: pocl calls `fma`, `vload`,
`exp` and their like as functions, which costs ten times as much. Functions exist for vectors (`exp_v`) and
for single floats (`exp_s`). Their errors are those of `engine/native/kernels_math.hpp`, about 2e-7: a NaN
stays one, infinities and saturation come out exact.
"""

from __future__ import annotations

from amphw.opencl import abi
from amphw.opencl.forms import Form

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
    text = _MATHEMATICS + _DROPOUT
    names = {"T": f"float{size}", "I": f"int{size}", "U": f"uint{size}", "S": "_s" if n == 1 else "_v"}
    for short, name in names.items():
        text = text.replace(f"${short}", name)
    return f"#define LANES{names['S']} {lanes}\n{text}"


_MATHEMATICS = """
// exp(r) - 1 for |r| <= ln 2 / 2, with a small *relative* error.
static $T expm1_reduced$S($T r)
{
    $T p = r * 1.38825167e-3f + 8.36654753e-3f;
    p = p * r + 4.16672006e-2f;
    p = p * r + 1.66665435e-1f;
    p = p * r + 4.99999970e-1f;
    return p * (r * r) + r;
}

// x = n * ln 2 + remainder. Adding 1.5 * 2^23 leaves no bits for a fraction: the low bits of the sum are n.
static $T reduce$S($T x, $I* n)
{
    const $T shifted = x * 1.44269504f + 12582912.0f;
    const $T whole = shifted - 12582912.0f;
    *n = as_$I(shifted) - 0x4b400000;
    return (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
}

static $T power_of_two$S($I n) { return as_$T((n + 127) << 23); }

static $T exp$S($T x)
{
    // Beyond these the result is infinite or 0 in any case. A NaN fails both comparisons and passes through.
    x = x > 89.0f ? ($T)(89.0f) : x;
    x = x < -104.0f ? ($T)(-104.0f) : x;
    $I n;
    const $T p = expm1_reduced$S(reduce$S(x, &n)) + 1.0f;
    // In two steps, since 2^128 and 2^-150 are not floats themselves.
    const $I half_n = n >> 1;
    return p * power_of_two$S(half_n) * power_of_two$S(n - half_n);
}

static $T sigmoid$S($T x) { return 1.0f / (1.0f + exp$S(-x)); }

// (e^2x - 1) / (e^2x - 1 + 2): unlike 2 sigmoid(2x) - 1 it keeps its relative accuracy near 0.
static $T tanh$S($T x)
{
    const $I sign_bit = as_$I(x) & (int)0x80000000;
    $T twice = as_$T(as_$I(x) ^ sign_bit) * 2.0f;
    twice = twice > 20.0f ? ($T)(20.0f) : twice;  // 1 to the last bit from 9.02 on
    $I n;
    const $T p = expm1_reduced$S(reduce$S(twice, &n));
    const $T scale = power_of_two$S(n);
    const $T e = scale * p + (scale - 1.0f);
    return as_$T(as_$I(e / (e + 2.0f)) | sign_bit);
}

static $T log$S($T x)
{
    const $T y = x < 1.17549435e-38f ? x * 8388608.0f : x;
    // y = mantissa * 2^exponent, with the mantissa in [sqrt(1/2), sqrt(2))
    const $I exponent = (as_$I(y) - 0x3f3504f3) >> 23;
    const $T f = as_$T(as_$I(y) - (exponent << 23)) - 1.0f;
    // A small integer as a float, the other way round than in reduce.
    const $T whole = as_$T(exponent + 0x4b400000) - 12582912.0f;
    const $T n = x < 1.17549435e-38f ? whole - 23.0f : whole;
    // log(1 + f) = f - f^2 / 2 + f^3 p(f)
    $T p = f * -7.63449743e-2f + 1.27615780e-1f;
    p = p * f - 1.31601825e-1f;
    p = p * f + 1.42017573e-1f;
    p = p * f - 1.66233569e-1f;
    p = p * f + 2.00012267e-1f;
    p = p * f - 2.50008196e-1f;
    p = p * f + 3.33333313e-1f;
    const $T square = f * f;
    const $T low = p * f * square - square * 0.5f - n * 2.12194440e-4f;
    $T result = (low + f) + n * 0.693359375f;
    result = x == INFINITY ? ($T)(INFINITY) : result;
    result = x == 0.0f ? ($T)(-INFINITY) : result;
    result = x < 0.0f ? ($T)(NAN) : result;
    return x != x ? x : result;
}

static $T relu$S($T a) { return a < 0.0f ? ($T)(0.0f) : a; }
static $T step$S($T a) { return a > 0.0f ? ($T)(1.0f) : ($T)(0.0f); }
static $T abs$S($T a) { return as_$T(as_$I(a) & 0x7fffffff); }
static $T equal$S($T a, $T b) { return a == b ? ($T)(1.0f) : ($T)(0.0f); }
static $T mul_step$S($T a, $T b) { return b > 0.0f ? a : ($T)(0.0f); }

// NaN if either is.
static $T maximum$S($T a, $T b) { return ((a > b) | (a != a)) ? a : b; }

static $T sign$S($T a)
{
    const $T negative = a < 0.0f ? ($T)(-1.0f) : ($T)(0.0f);
    const $T number = a > 0.0f ? ($T)(1.0f) : negative;
    return a != a ? a : number;
}

// `placed` in column `index`, 0 in all others; `column` is that of the first component.
static $T place$S(float placed, int index, int column)
{
    return LANES$S + column == index ? ($T)(placed) : ($T)(0.0f);
}
"""

_DROPOUT = """
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

// A row's mask from `column` on, 1 where the element is kept: where the 24 bits drawn reach `least`, which is
// the rate times 2^24. `word` is made of the row's integers.
static $T keep$S(uint word, uint seed, int column, uint least)
{
    const $U columns = as_$U(LANES$S + column);
    const $U drawn = philox$S(columns, ($U)(word), seed ^ 0x5BD1E995u) >> 8;
    return drawn >= least ? ($T)(1.0f) : ($T)(0.0f);
}
"""
