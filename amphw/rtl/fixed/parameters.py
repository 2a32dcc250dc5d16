"""Parameters as the hardware holds them: visible weights, masters, summed gradients, velocities; and updates.

The master is an integer of `formats.master` bits whose high half is the visible weight. With stochastic
rounding only the visible weight is kept: an update is computed with as many bits, to which random ones are
added before they are cut off.

Learning rates: a table of 256 mantissas over the number of updates, one exponent for the device. A mean over
rows divides the mantissa, not the gradients; the quotient is rounded down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol

import numpy as np

from amphw.ir.errors import GraphError
from amphw.ir.optimizers import OPTIMIZERS
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.rtl.fixed.norm import clipped, limit_of, norm, norm_shift
from amphw.rtl.numbers.arithmetic import round_shift
from amphw.rtl.numbers.formats import BITS, Format, Formats

UPDATES = tuple(name for name, row in OPTIMIZERS.items() if not row.hardware)
"""Optimisers that the hardware has."""

RATES = 256
"""Entries of the table of learning rates."""

RATE_BITS = 16
"""Of a learning rate's mantissa."""

COEFFICIENT_BITS = 27
"""Of what a summed gradient is multiplied with, unsigned."""

PER_ROW = 11
"""Bits that a mantissa is shifted by before rows divide it: an interval of 2**11 keeps it whole."""

RECIPROCAL = 26
"""Bits behind the point of 1 / rows, with momentum."""

VELOCITY = Format(26, 32)
"""Momentum's velocity: -32 .. 32."""

MU_BITS = 15
"""Bits behind the point of momentum's coefficient."""

LFSR_TAPS = 0xA3000000
"""Feedback of the 32-bit Galois LFSR that stochastic rounding draws from."""


SEED_OF_UPDATE, SEED_OF_PARAMETER = 0x9E3779B1, 0x85EBCA6B
"""Factors that set the random sequences of updates apart (golden ratio; murmur3)."""


@dataclass(frozen=True)
class FixedRule:
    """One node's update rule as integers.

    interval: rows. mean: whether rows divide. rates: mantissas; update number n uses `rates[min(n >>
    rate_step, 255)]`, over 2**exponent. mu: momentum's coefficient, None without momentum. limit: of the norm
    of a parameter's gradient (`limit_of`), 0 without clipping.
    """

    interval: int
    mean: bool
    rates: tuple[int, ...]
    rate_step: int
    mu: int | None
    limit: int = 0

    def rate(self, updates: int) -> int:
        return self.rates[min(updates >> self.rate_step, RATES - 1)]

    def coefficient(self, updates: int, rows: int) -> int:
        """What the summed gradient is multiplied with, unsigned, COEFFICIENT_BITS.

        The rate over the rows, or, with momentum, their reciprocal alone.
        """
        return self.of_a_row(updates) // (rows if self.mean else 1)

    def of_a_row(self, updates: int) -> int:
        """The coefficient where there is one row; COEFFICIENT_BITS hold it."""
        return 1 << RECIPROCAL if self.mu is not None else self.rate(updates) << PER_ROW

    def clipped(self, updates: int, rows: int, norm: int) -> int:
        """The coefficient of a parameter whose summed gradient has this norm."""
        return clipped(self.coefficient(updates, rows), self.of_a_row(updates), self.limit, norm)


def exponent_of(rules: Iterable[UpdateRule]) -> int:
    """The exponent that all rules of a device share: their largest rate has all bits of its mantissa."""
    largest = max((r.lr for r in rules), default=1.0)
    return RATE_BITS - 1 - math.floor(math.log2(largest)) if largest > 0 else RATE_BITS


def fixed_rule(node: str, rule: UpdateRule, exponent: int, formats: Formats) -> FixedRule:
    """GraphError for what the update unit cannot do, naming the node."""
    if rule.optimizer not in UPDATES:
        raise GraphError(
            f"the hardware updates with {' or '.join(UPDATES)}, not with {rule.optimizer}: "
            f"{rule.row.hardware}",
            node=node,
        )
    if rule.weight_decay:
        raise GraphError("the hardware's update has no weight_decay: set update.weight_decay=0", node=node)
    # Past warmup and schedule the rate stays as it is.
    last = max(rule.warmup, 0 if rule.schedule == "constant" else 8 * rule.schedule_steps)
    if rule.schedule == "cosine":
        last = max(rule.warmup, rule.schedule_steps)
    step = max(0, math.ceil(math.log2((last + 1) / (RATES - 1))))
    top = (1 << RATE_BITS) - 1
    rates = tuple(min(round(rule.rate(n << step) * 2.0**exponent), top) for n in range(RATES))
    mu = round(rule.momentum * 2**MU_BITS) if rule.optimizer == "momentum" else None
    if mu is not None and not 0 <= mu < 1 << MU_BITS:
        raise GraphError(f"momentum = {rule.momentum}, allowed is 0 .. 1 (excluded)", node=node)
    limit = limit_of(node, rule.clip, formats)
    return FixedRule(rule.interval, rule.reduce == "mean", rates, step, mu, limit)


@dataclass(frozen=True)
class UpdateShifts:
    """Constants of the update unit: shifts of the step's product, and of the velocity's with momentum.

    s1: of gradient times coefficient. s2: of velocity times rate.
    """

    s1: int
    s2: int

    @classmethod
    def of(cls, formats: Formats, exponent: int, momentum: bool) -> UpdateShifts:
        if momentum:
            s1 = formats.sums_frac + RECIPROCAL - VELOCITY.frac
            return cls(s1, VELOCITY.frac + exponent - formats.master_frac)
        return cls(formats.sums_frac + exponent + PER_ROW - formats.master_frac, 0)


class Watch(Protocol):
    def __call__(self, param: str, what: str, exact: np.ndarray, shift: int, whole: np.ndarray) -> None:
        """Sees what an update computes: exact / 2**shift has become `whole`, which has not been saturated.

        what: "sum" (the summed gradient), "velocity", "update" (what is subtracted), "weight".
        """
        ...


@dataclass
class FixedArray:
    """One parameter's integers: master (its high half is the visible weight), sums, velocity. All int64."""

    master: np.ndarray
    sums: np.ndarray
    velocity: np.ndarray | None
    clipped: int = 0  # initial weights outside the format


@dataclass
class FixedParameters:
    """The parameters of one node.

    visible: weights by name, replaced, never changed in place: whoever holds a version keeps it. watch: told
    of what updates compute.
    """

    node: str
    formats: Formats
    rule: FixedRule
    shifts: UpdateShifts
    arrays: dict[str, FixedArray]
    version: int = 0
    rows: int = 0
    visible: dict[str, np.ndarray] = field(default_factory=dict)
    watch: Watch | None = None

    @classmethod
    def of(cls, node: str, formats: Formats, exponent: int, given: NodeParameters) -> FixedParameters:
        """From values in floats, such as a checkpoint's. What `in_floats` made comes back bit for bit."""
        rule = fixed_rule(node, given.rule, exponent, formats)
        shifts = UpdateShifts.of(formats, exponent, rule.mu is not None)
        made = cls(node, formats, rule, shifts, {}, given.version, given.rows)
        for name, values in given.values.items():
            made.arrays[name] = made.quantised(name, values, given)
        made.visible = made.look()
        return made

    def quantised(self, name: str, values: np.ndarray, given: NodeParameters) -> FixedArray:
        f = self.formats
        master = Format(f.master_frac, f.master)
        if f.rounding == "stochastic":
            exact, limit = f.weight.exact(values), f.weight
            kept = np.clip(exact, limit.low, limit.high) << f.low_bits
        else:
            exact, limit = master.exact(values), master
            kept = np.clip(exact, limit.low, limit.high)
        sums = Format(f.sums_frac, f.sums).quantise(given.gradients[name])
        velocity = VELOCITY.quantise(given.slots[name][0]) if self.rule.mu is not None else None
        clipped = int(np.count_nonzero((exact < limit.low) | (exact > limit.high)))
        return FixedArray(kept, sums, velocity, clipped)

    def look(self) -> dict[str, np.ndarray]:
        """The visible weights of the masters as they are now."""
        return {n: a.master >> self.formats.low_bits for n, a in self.arrays.items()}

    def prepare(self) -> dict[str, np.ndarray]:
        """Update the masters with what has been summed -> the next version's visible weights."""
        rule, rows = self.rule, max(self.rows, 1)
        rate = rule.rate(self.version)
        for number, (name, a) in enumerate(self.arrays.items()):
            size = norm(a.sums, norm_shift(self.formats)) if rule.limit else 0
            coefficient = rule.clipped(self.version, rows, size)
            self._update(name, a, coefficient, rate, lfsr_seed(self.version, number))
            a.sums = np.zeros_like(a.sums)
        self.rows = 0
        return self.look()

    def publish(self, visible: Mapping[str, np.ndarray]) -> None:
        self.visible = dict(visible)
        self.version += 1

    def _update(self, name: str, a: FixedArray, coefficient: int, rate: int, seed: int) -> None:
        f, watch = self.formats, self.watch or _nobody
        watch(name, "sum", a.sums, 0, a.sums)
        product, shift = a.sums * coefficient, self.shifts.s1
        step = round_shift(product, shift)
        if a.velocity is not None:
            moving = round_shift(a.velocity * int(self.rule.mu or 0), MU_BITS) + step
            watch(name, "velocity", moving, 0, moving)
            a.velocity = _saturated(moving, VELOCITY.bits)
            product, shift = a.velocity * rate, self.shifts.s2
            step = round_shift(product, shift)
        watch(name, "update", product, shift, step)
        moved = a.master - step
        if f.rounding == "stochastic":
            noise = lfsr(seed, a.master.size).reshape(a.master.shape) & ((1 << f.low_bits) - 1)
            moved = moved + noise
        watch(name, "weight", moved, f.low_bits, moved >> f.low_bits)
        a.master = _saturated(moved, f.master)
        if f.rounding == "stochastic":
            a.master = (a.master >> f.low_bits) << f.low_bits


def _saturated(x: np.ndarray, bits: int) -> np.ndarray:
    return np.clip(x, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _nobody(param: str, what: str, exact: np.ndarray, shift: int, whole: np.ndarray) -> None:
    return None


def in_floats(fixed: FixedParameters, given: NodeParameters) -> NodeParameters:
    """The same parameters as the host reads them: masters, sums and velocities, float64, which holds them."""
    f = fixed.formats
    values, gradients, slots = {}, {}, {}
    for name, a in fixed.arrays.items():
        values[name] = np.ldexp(a.master.astype(np.float64), -f.master_frac)
        gradients[name] = np.ldexp(a.sums.astype(np.float64), -f.sums_frac)
        slots[name] = (
            [np.ldexp(a.velocity.astype(np.float64), -VELOCITY.frac)] if a.velocity is not None else []
        )
    return replace(
        given, values=values, gradients=gradients, slots=slots, version=fixed.version, rows=fixed.rows
    )


def lfsr_seed(version: int, number: int) -> int:
    """Where an update of parameter `number` of a node starts its random sequence; never 0."""
    return ((version + 1) * SEED_OF_UPDATE + number * SEED_OF_PARAMETER & 0xFFFFFFFF) | 1


def lfsr(seed: int, n: int) -> np.ndarray:
    """The first n states of the LFSR, its seed the first; int64 [n]."""
    out = np.zeros(n, np.int64)
    for bit, states in enumerate(_basis(n)):
        if seed >> bit & 1:
            out ^= states
    return out


@lru_cache(maxsize=64)
def _basis(n: int) -> np.ndarray:
    """States of the LFSR from each single bit; it is linear, so these make every sequence. int64 [32, n]."""
    out = np.empty((32, n), np.int64)
    state = np.int64(1) << np.arange(32, dtype=np.int64)
    for k in range(n):
        out[:, k] = state
        state = (state >> 1) ^ np.where(state & 1, LFSR_TAPS, 0)
    return out


assert BITS == 16  # the visible weight is a whole word of the memory
