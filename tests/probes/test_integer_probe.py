"""A linear PPT in 16-bit fixed point: the same instructions in integers, exact bit for bit.

Numbers are int16 with a fixed binary point (Qm.n: n fraction bits). Products are added up in wide
integers, so a sum is exact whatever its order; rounding (to nearest, ties to even) and saturation happen
once, where a value leaves the program. Gradients of parameters stay wide over all messages and never
round before the update.

Two interpreters walk the same `Program`: one in numpy integers, as hardware would compute, and one in
exact fractions, one entry at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from amphw.ir.derive import Derivative, accumulate, differentiate
from amphw.ir.functions import linear
from amphw.ir.primitives import RowContext
from amphw.ir.program import Program, trace

LOW, HIGH = -(1 << 15), (1 << 15) - 1


@dataclass(frozen=True)
class Wide:
    """Exact values int64 [rows, width] with `fraction` bits behind the binary point."""

    values: np.ndarray
    fraction: int

    def shifted(self, fraction: int) -> Wide:
        return Wide(self.values << (fraction - self.fraction), fraction)


def narrow(x: Wide, fraction: int) -> np.ndarray:
    """To int16 with `fraction` bits: round to nearest, ties to even, then saturate."""
    drop = x.fraction - fraction
    if drop <= 0:
        return np.clip(x.values << -drop, LOW, HIGH).astype(np.int16)
    floor, rest, half = x.values >> drop, x.values & ((1 << drop) - 1), 1 << (drop - 1)
    up = (rest > half) | ((rest == half) & (floor & 1 == 1))
    return np.clip(floor + up, LOW, HIGH).astype(np.int16)


def to_fixed(x: np.ndarray, fraction: int) -> np.ndarray:
    """The nearest int16, ties to even (a product with a power of two is exact)."""
    return np.clip(np.rint(x.astype(np.float64) * 2.0**fraction), LOW, HIGH).astype(np.int16)


def run_integer(program: Program, inputs: list[Wide], params: dict[str, Wide]) -> list[Wide]:
    """The outputs before rounding. Only what a linear layer and its derivatives consist of."""
    values, rows = list(inputs), inputs[0].values.shape[0]
    for instr in program.instrs:
        a, at = [values[i] for i in instr.args], instr.attr()
        if instr.op in {"matmul", "matmul_t"}:
            w = params[at["param"]]
            weight = w.values if instr.op == "matmul" else w.values.T
            values.append(Wide(a[0].values @ weight, a[0].fraction + w.fraction))
        elif instr.op == "row_param":
            bias = params[at["param"]]
            values.append(Wide(np.broadcast_to(bias.values, (rows, bias.values.shape[0])), bias.fraction))
        elif instr.op == "add":
            fraction = max(x.fraction for x in a)
            values.append(Wide(a[0].shifted(fraction).values + a[1].shifted(fraction).values, fraction))
        else:
            raise NotImplementedError(f"the probe does not compute '{instr.op}' in integers")
    return [values[o] for o in program.outputs]


Exact = list[list[Fraction]]


def exact(x: Wide) -> Exact:
    rows = np.atleast_2d(x.values)
    return [[Fraction(int(v), 1 << x.fraction) for v in row] for row in rows]


def run_exact(program: Program, inputs: list[Exact], params: dict[str, Exact]) -> list[Exact]:
    values = list(inputs)
    for instr in program.instrs:
        a, at = [values[i] for i in instr.args], instr.attr()
        p = params[at["param"]] if "param" in at else []
        if instr.op == "matmul":
            values.append(_product(a[0], p))
        elif instr.op == "matmul_t":
            values.append(_product(a[0], [list(column) for column in zip(*p, strict=True)]))
        elif instr.op == "row_param":
            values.append([p[0] for _ in inputs[0]])
        elif instr.op == "add":
            values.append([[x + y for x, y in zip(*rows, strict=True)] for rows in zip(*a, strict=True)])
        else:
            raise NotImplementedError(instr.op)
    return [values[o] for o in program.outputs]


def _product(a: Exact, b: Exact) -> Exact:
    columns = list(zip(*b, strict=True))
    return [[sum((x * y for x, y in zip(row, c, strict=True)), Fraction(0)) for c in columns] for row in a]


def rounded(x: Exact, fraction: int) -> np.ndarray:
    """Python rounds fractions to nearest, ties to even, which is the definition that `narrow` has to meet."""
    return np.array([[min(max(round(v * (1 << fraction)), LOW), HIGH) for v in row] for row in x])


# --- one layer, in both ways --------------------------------------------------------------------

DIN, DOUT, ROWS, MESSAGES = 6, 4, 5, 3
PROGRAM = trace(lambda p, x: linear(x, p.W, p.b), {"x": DIN}, {"W": (DIN, DOUT), "b": (DOUT,)})
DERIVATIVE: Derivative = differentiate(PROGRAM)

# Fraction bits of x, W, b, y, dy and dx; the second set rounds hard, the third gains fraction bits.
FORMATS = [(10, 12, 10, 9, 12, 11), (3, 13, 6, 1, 5, 2), (8, 2, 4, 12, 9, 12)]
SCALES = {"ordinary": 0.02, "saturating": 1.0}


def _draw(rng: np.random.Generator, shape: tuple[int, ...], scale: float) -> np.ndarray:
    """int16 values; small ones give ties often, full-scale ones saturate."""
    drawn = rng.integers(int(LOW * scale), int(HIGH * scale) + 1, shape)
    return np.where(rng.random(shape) < 0.3, drawn & ~0xFF, drawn).astype(np.int16)


def _wide(x: np.ndarray, fraction: int) -> Wide:
    return Wide(x.astype(np.int64), fraction)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("formats", FORMATS, ids=str)
def test_integers_equal_exact_arithmetic_bit_for_bit(formats: tuple[int, ...], scale: str) -> None:
    fx, fw, fb, fy, fdy, fdx = formats
    rng = np.random.default_rng(sum(formats))
    size = SCALES[scale]
    params = {"W": _wide(_draw(rng, (DIN, DOUT), size), fw), "b": _wide(_draw(rng, (DOUT,), size), fb)}
    exact_params = {n: exact(p) for n, p in params.items()}
    sums = {"W": np.zeros((DIN, DOUT), np.int64), "b": np.zeros(DOUT, np.int64)}
    fractions = {"W": fx + fdy, "b": fdy}
    exact_sums = {"W": [[Fraction(0)] * DOUT for _ in range(DIN)], "b": [[Fraction(0)] * DOUT]}
    saturated = 0
    for _ in range(MESSAGES):
        x, dy = _wide(_draw(rng, (ROWS, DIN), size), fx), _wide(_draw(rng, (ROWS, DOUT), size), fdy)

        (y,) = run_integer(DERIVATIVE.forward, [x], params)
        (exact_y,) = run_exact(DERIVATIVE.forward, [exact(x)], exact_params)
        np.testing.assert_array_equal(narrow(y, fy), rounded(exact_y, fy))
        saturated += int(np.isin(narrow(y, fy), (LOW, HIGH)).sum())

        operands = [dy, *({"input": [x], "output": [y]}[kind][i] for kind, i in DERIVATIVE.residuals)]
        got = run_integer(DERIVATIVE.backward, operands, params)
        wanted = run_exact(DERIVATIVE.backward, [exact(o) for o in operands], exact_params)
        np.testing.assert_array_equal(narrow(got[0], fdx), rounded(wanted[0], fdx))

        for term in DERIVATIVE.terms:
            a = None if term.a is None else got[term.a]
            dz = got[term.dz]
            assert dz.fraction + (a.fraction if a else 0) == fractions[term.param]
            accumulate(term.kind, sums[term.param], a.values if a else None, dz.values)
            left: Exact = [[Fraction(1)] * ROWS]  # a column sum is a product with ones
            if term.a is not None:
                left = [list(column) for column in zip(*wanted[term.a], strict=True)]
            more = _product(left, wanted[term.dz])
            exact_sums[term.param] = [
                [p + q for p, q in zip(*rows, strict=True)]
                for rows in zip(exact_sums[term.param], more, strict=True)
            ]
    for name, total in sums.items():
        assert exact(Wide(total, fractions[name])) == exact_sums[name]
    assert saturated > 0 or scale == "ordinary"


def test_ties_go_to_even_and_the_ends_saturate() -> None:
    halves = Wide(np.array([-5, -3, -1, 1, 3, 5, 2 * HIGH + 1, 2 * LOW - 1, 1 << 40, -(1 << 40)]), 1)
    np.testing.assert_array_equal(narrow(halves, 0), [-2, -2, 0, 0, 2, 2, HIGH, LOW, HIGH, LOW])
    np.testing.assert_array_equal(narrow(Wide(np.array([1, HIGH]), 0), 3), [8, HIGH])


def test_the_accumulator_is_wide_enough_for_the_longest_sum() -> None:
    """Worst case: every product is (-2**15)**2; 2**33 of them still fit 63 bits."""
    rows = 1 << 12
    worst = np.full((1, rows), LOW, dtype=np.int64)
    assert int((worst @ worst.T)[0, 0]) == rows * 2**30
    assert 2**33 * 2**30 <= 2**63


@pytest.mark.parametrize("fraction", [6, 8, 10])
def test_the_distance_from_float_stays_within_the_bound(fraction: int) -> None:
    """Inputs are off by d = 2**-(n+1): |error of y| <= sum(|x| d + |w| d + d*d) + d (bias) + d (rounding)."""
    rng = np.random.default_rng(fraction)
    d = 2.0 ** -(fraction + 1)
    x, dy = rng.uniform(-1, 1, (200, DIN)), rng.uniform(-1, 1, (200, DOUT))
    w, b = rng.uniform(-1, 1, (DIN, DOUT)), rng.uniform(-1, 1, DOUT)
    params = {"W": _wide(to_fixed(w, fraction), fraction), "b": _wide(to_fixed(b, fraction), fraction)}
    fixed_x, fixed_dy = (_wide(to_fixed(v, fraction), fraction) for v in (x, dy))
    context = RowContext(len(x), {"rows": 1})

    (float_y,) = DERIVATIVE.forward.run(context, [x], [], {"W": w, "b": b})
    (y,) = run_integer(DERIVATIVE.forward, [fixed_x], params)
    error = np.abs(narrow(y, fraction) * 2.0**-fraction - float_y)
    bound = (np.abs(x).sum(1)[:, None] + np.abs(w).sum(0)[None, :]) * d + DIN * d * d + 2 * d
    assert (error <= bound).all()
    assert error.max() > d  # the bound is met by more than the rounding of y alone: inputs were rounded too

    float_dx = DERIVATIVE.backward.run(context, [dy, x], [], {"W": w, "b": b})[0]
    dx = run_integer(DERIVATIVE.backward, [fixed_dy, fixed_x], params)[0]
    error = np.abs(narrow(dx, fraction) * 2.0**-fraction - float_dx)
    bound = (np.abs(dy).sum(1)[:, None] + np.abs(w).sum(1)[None, :]) * d + DOUT * d * d + d
    assert (error <= bound).all()

    gradient = fixed_x.values.T @ fixed_dy.values * 2.0 ** (-2 * fraction)
    bound = (np.abs(x).sum(0)[:, None] + np.abs(dy).sum(0)[None, :]) * d + len(x) * d * d
    assert (np.abs(gradient - x.T @ dy) <= bound).all()
