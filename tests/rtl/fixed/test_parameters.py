"""Updates against plain Python: one weight after another, with integers of any length and a stepped LFSR."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from amphw.ir.errors import GraphError
from amphw.ir.program import ParamSpec
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.rtl.fixed.parameters import (
    FixedParameters,
    exponent_of,
    fixed_rule,
    in_floats,
    lfsr,
    lfsr_seed,
)
from amphw.rtl.numbers.formats import Format, Formats

SHAPES = {"W": (3, 4), "b": (4,)}
RULES = {
    "sgd": UpdateRule(optimizer="sgd", lr=0.3),
    "sum": UpdateRule(optimizer="sgd", lr=0.01, reduce="sum"),
    "momentum": UpdateRule(
        optimizer="momentum", lr=0.05, momentum=0.9, schedule="cosine", schedule_steps=700
    ),
    "warmup": UpdateRule(optimizer="momentum", lr=1.5, momentum=0.5, warmup=40),
    "clipped": UpdateRule(optimizer="sgd", lr=0.3, clip=1e-4),
    "clipped momentum": UpdateRule(optimizer="momentum", lr=0.05, clip=1e-4, reduce="sum"),
}
FORMATS = (
    "q4.12",
    "q4.12,w=q1.15,g=q5.11,master=24",
    "q4.12,round=stochastic",
    "q2.14,round=stochastic,master=24",
)


def parameters(rule: UpdateRule, seed: int = 0, scale: float = 0.5) -> NodeParameters:
    rng = np.random.default_rng(seed)
    specs = tuple(ParamSpec(n, shape) for n, shape in SHAPES.items())
    values = {n: rng.normal(scale=scale, size=shape) for n, shape in SHAPES.items()}
    return NodeParameters.of(specs, rule, values)


def step_lfsr(x: int) -> int:
    return (x >> 1) ^ (0xA3000000 if x & 1 else 0)


def clamp(x: int, bits: int) -> int:
    return min(max(x, -(1 << (bits - 1))), (1 << (bits - 1)) - 1)


def round_half_even(x: int, shift: int) -> int:
    if shift <= 0:
        return x << -shift
    whole, rest = x >> shift, x & ((1 << shift) - 1)
    half = 1 << (shift - 1)
    return whole + (rest > half or (rest == half and whole & 1))


class Plain:
    """One node's parameters as lists of Python integers; the update as the hardware does it."""

    def __init__(self, fixed: FixedParameters, f: Formats):
        self.f, self.rule, self.shifts = f, fixed.rule, fixed.shifts
        self.clipped = 0
        self.master = {n: [int(x) for x in a.master.ravel()] for n, a in fixed.arrays.items()}
        self.velocity = {
            n: [int(x) for x in a.velocity.ravel()] if a.velocity is not None else None
            for n, a in fixed.arrays.items()
        }

    def update(self, sums: dict[str, np.ndarray], version: int, rows: int) -> None:
        rule, s = self.rule, self.shifts
        rate = rule.rates[min(version >> rule.rate_step, 255)]
        over = rows if rule.mean else 1
        if rule.mu is None:
            c = min((rate << 11) // over, (1 << 27) - 1)
        else:
            c = min((1 << 26) // over, (1 << 27) - 1)
        unclipped = c
        for number, name in enumerate(self.master):
            c = unclipped
            if rule.limit:
                drop = max(0, self.f.sums - 33)
                squares = sum(round_half_even(int(g), drop) ** 2 for g in sums[name].ravel())
                of_one = rate << 11 if rule.mu is None else 1 << 26
                c = min(c, of_one * rule.limit // math.isqrt(squares))
                self.clipped += c < unclipped
            noise = lfsr_seed(version, number)
            for k, g in enumerate(int(x) for x in sums[name].ravel()):
                delta = round_half_even(g * c, s.s1)
                if rule.mu is not None:
                    v = clamp(round_half_even(self.velocity[name][k] * rule.mu, 15) + delta, 32)
                    self.velocity[name][k] = v
                    delta = round_half_even(v * rate, s.s2)
                m = self.master[name][k] - delta
                if self.f.rounding == "stochastic":
                    m += noise & ((1 << self.f.low_bits) - 1)
                    noise = step_lfsr(noise)
                m = clamp(m, self.f.master)
                if self.f.rounding == "stochastic":
                    m = m >> self.f.low_bits << self.f.low_bits
                self.master[name][k] = m


@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("large", [False, True])
def test_updates_are_those_of_plain_integers(formats: str, rule: str, large: bool) -> None:
    """large: sums and weights at the ends of their ranges, where masters and velocities saturate."""
    f, given = Formats.parse(formats), parameters(RULES[rule])
    fixed = FixedParameters.of("n", f, exponent_of([given.rule]), given)
    rng = np.random.default_rng(1)
    top = 1 << (f.sums - 1 if large else 24)
    if large:
        for a in fixed.arrays.values():
            end = 1 << (f.master - 1)
            a.master = rng.choice([-end, end - 1], a.master.shape) >> f.low_bits << f.low_bits
    plain = Plain(fixed, f)
    for version in range(6):
        sums = {n: rng.integers(-top, top, shape) for n, shape in SHAPES.items()}
        for n, s in sums.items():
            fixed.arrays[n].sums = s.copy()
        fixed.rows = rows = int(rng.integers(1, 3000))
        visible = fixed.prepare()
        plain.update(sums, version, rows)
        fixed.publish(visible)
        for n, a in fixed.arrays.items():
            assert a.master.ravel().tolist() == plain.master[n]
            assert (visible[n] == a.master >> f.low_bits).all() and np.abs(visible[n]).max() <= 1 << 15
            assert not a.sums.any()
            if a.velocity is not None:
                assert a.velocity.ravel().tolist() == plain.velocity[n]
    assert fixed.version == 6 and fixed.rows == 0
    assert bool(plain.clipped) == bool(RULES[rule].clip)


@pytest.mark.parametrize("formats", FORMATS)
def test_weights_at_the_ends_of_their_format_are_not_clipped(formats: str) -> None:
    """And one step beyond they are."""
    f, given = Formats.parse(formats), parameters(RULES["sgd"])
    stochastic = f.rounding == "stochastic"
    limit = f.weight if stochastic else Format(f.master_frac, f.master)
    for exact, clipped in ((limit.high, 0), (limit.low, 0), (limit.high + 1, 4), (limit.low - 1, 4)):
        given.values["b"] = np.full(SHAPES["b"], math.ldexp(exact, -limit.frac))
        found = FixedParameters.of("n", f, exponent_of([given.rule]), given).arrays["b"]
        assert found.clipped == clipped
        kept = min(max(exact, limit.low), limit.high) << (f.low_bits if stochastic else 0)
        assert found.master.tolist() == [kept] * 4


@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("rule", ["sgd", "momentum"])
def test_updates_are_near_those_in_floats(rule: str, clip: float) -> None:
    """The norm of these gradients is about 1.1 and 0.7: with the limit both are clipped."""
    f, given = Formats.parse("q4.12"), parameters(replace(RULES[rule], clip=clip), scale=0.2)
    fixed = FixedParameters.of("n", f, exponent_of([given.rule]), given)
    rng = np.random.default_rng(2)
    for _ in range(20):
        for n, shape in SHAPES.items():
            g = rng.normal(size=shape)
            given.gradients[n][...] = g
            fixed.arrays[n].sums = np.rint(g * 2.0**f.sums_frac).astype(np.int64)
        given.rows = fixed.rows = 3
        given.update()
        fixed.publish(fixed.prepare())
    for n, value in in_floats(fixed, given).values.items():
        # Twenty updates, each off by the rounding of a rate (2**-17) and of a sum (2**-27), of 0.3 at most.
        np.testing.assert_allclose(value, given.values[n], atol=20 * 0.3 * 2**-15)


@pytest.mark.parametrize("n", [1, 100])
def test_the_random_sequence_is_that_of_a_stepped_register(n: int) -> None:
    state, expected = lfsr_seed(7, 1), []
    for _ in range(n):
        expected.append(state)
        state = step_lfsr(state)
    assert lfsr(lfsr_seed(7, 1), n).tolist() == expected
    assert all(lfsr_seed(v, k) for v in range(50) for k in range(3))


def test_stochastic_rounding_is_right_on_average() -> None:
    """A gradient of a third of a step moves the visible weight by a third of a step on average."""
    f = Formats.parse("q4.12,round=stochastic")
    given = parameters(UpdateRule(optimizer="sgd", lr=1.0))
    given.values["W"] = np.zeros(SHAPES["W"])
    fixed = FixedParameters.of("n", f, exponent_of([given.rule]), given)
    n = 3000
    for _ in range(n):
        fixed.arrays["W"].sums = np.full(SHAPES["W"], round(2.0**f.sums_frac * 2**-12 / 3))
        fixed.rows = 1
        fixed.publish(fixed.prepare())
    # 12 weights of n coins with p = 1/3 each: a standard deviation of sqrt(12 n 2/9); four of them.
    off = float(-fixed.visible["W"].sum() - 12 * n / 3)
    assert abs(off) <= 4 * math.sqrt(12 * n * 2 / 9)


@pytest.mark.parametrize("formats", FORMATS)
def test_what_the_host_reads_comes_back_bit_for_bit(formats: str) -> None:
    f, given = Formats.parse(formats), parameters(RULES["momentum"])
    fixed = FixedParameters.of("n", f, exponent_of([given.rule]), given)
    rng = np.random.default_rng(3)
    for a in fixed.arrays.values():
        a.master = rng.integers(-(1 << (f.master - 1)), 1 << (f.master - 1), a.master.shape)
        if f.rounding == "stochastic":
            a.master = a.master >> f.low_bits << f.low_bits
        a.sums = rng.integers(-(1 << (f.sums - 1)), 1 << (f.sums - 1), a.sums.shape)
        a.velocity = rng.integers(-(1 << 31), 1 << 31, a.master.shape)
    read = in_floats(fixed, given)
    again = FixedParameters.of("n", f, exponent_of([given.rule]), read)
    for n, a in fixed.arrays.items():
        other = again.arrays[n]
        assert (a.master == other.master).all() and (a.sums == other.sums).all()
        assert (a.velocity == other.velocity).all() and other.clipped == 0


@pytest.mark.parametrize(
    "rule, message",
    [
        (
            UpdateRule(optimizer="adam"),
            "node 'n': the hardware updates with sgd or momentum, not with adam: "
            "set update.optimizer=momentum (and a rate that suits it)",
        ),
        (
            UpdateRule(clip=1e6),
            "node 'n': clip = 1e+06: with these number formats a norm can be limited to 1.19e-07 .. "
            "4.1e+03; set update.clip to one of them, or to 0",
        ),
        (
            UpdateRule(clip=1e-9),
            "node 'n': clip = 1e-09: with these number formats a norm can be limited to 1.19e-07 .. "
            "4.1e+03; set update.clip to one of them, or to 0",
        ),
        (
            UpdateRule(weight_decay=0.1),
            "node 'n': the hardware's update has no weight_decay: set update.weight_decay=0",
        ),
    ],
)
def test_what_the_update_unit_cannot_do_is_refused(rule: UpdateRule, message: str) -> None:
    with pytest.raises(GraphError) as error:
        fixed_rule("n", rule, 15, Formats.parse("q4.12"))
    assert str(error.value) == message
