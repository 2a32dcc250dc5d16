"""The table of optimisers: one row each, with all that an executor must know of a rule of update.

Sources of the rules: SGD and momentum as in Sutskever et al. (ICML 2013, without Nesterov), Adagrad (Duchi et
al., JMLR 2011), Adam (Kingma and Ba, ICLR 2015), NAdam (Dozat, ICLR workshop 2016) as PyTorch has it, lazy
Adam as TensorFlow's LazyAdam: a number without a gradient stays as it is, and so do its moments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import CodeType
from typing import Any

import numpy as np

from amphw.ir.primitives.kernel_text import KernelText

Array = np.ndarray
Scalars = Mapping[str, Any]

SETTINGS = ("momentum", "beta1", "beta2", "eps")
"""Numbers of an `UpdateRule` that rows may name."""

_FUNCTIONS = {name: getattr(math, name) for name in ("sqrt", "pow", "floor", "cos")} | {
    "min": min,
    "max": max,
}
"""What expressions may call; C++ has the same under these names."""


@dataclass(frozen=True)
class Optimizer:
    """One row. The new parameter is w - rate * change, g the gradient, scaled, clipped and decayed.

    change: in numpy, (g, slots, scalars) -> change; `slots`, arrays as large as the parameter, change in
    place. kernel: the same in the C of `kernel_text`, of g, slot0, slot1 and the names of scalars and
    settings; it may assign slots.

    scalars: by name, numbers of one update, as expressions of settings, of n (the update's number, from 1),
    of rate and of earlier ones, in order, in the C that C++ and Python share. One that is named "rate"
    replaces the learning rate. state: scalars that live from update to update, with what they are before the
    first; an expression of that name replaces them. Checkpoints keep them.

    operations: floating-point operations of an update for each number, mean included; clipping and decay
    not. memoryless: where the gradient is 0, neither parameter nor slots change. hardware: what to do in
    place of it where circuits do not have it; empty where they have.
    """

    change: Callable[[Array, list[Array], Scalars], Array]
    kernel: KernelText
    slots: int
    operations: int
    scalars: Mapping[str, str] = field(default_factory=dict)
    state: Mapping[str, float] = field(default_factory=dict)
    memoryless: bool = False
    hardware: str = "set update.optimizer=momentum (and a rate that suits it)"

    @property
    def numbers(self) -> tuple[str, ...]:
        """What executors give to the kernel, in this order: the rate, then what it names."""
        known = [name for name in dict.fromkeys((*SETTINGS, *self.scalars)) if name != "rate"]
        return ("rate", *(name for name in known if self.kernel.names(name)))

    def computed(self, given: Mapping[str, float], state: dict[str, float]) -> dict[str, float]:
        """The numbers of one update: settings, rate and n are given; `state` changes in place."""
        names: dict[str, float] = {**given, **state}
        for name, text in self.scalars.items():
            names[name] = evaluated(text, names)
        state.update({name: names[name] for name in state})
        return names


def evaluated(text: str, names: Mapping[str, float]) -> float:
    """An expression of a row."""
    return float(eval(_compiled(text), {"__builtins__": {}, **_FUNCTIONS}, names))


@cache
def _compiled(text: str) -> CodeType:
    return compile(text, f"<{text}>", "eval")


def _momentum(g: Array, slots: list[Array], s: Scalars) -> Array:
    velocity = slots[0]
    velocity *= s["momentum"]
    velocity += g
    return velocity


def _adagrad(g: Array, slots: list[Array], s: Scalars) -> Array:
    slots[0] += np.square(g)
    return g / (np.sqrt(slots[0]) + s["eps"])


def _moments(g: Array, slots: list[Array], s: Scalars) -> tuple[Array, Array]:
    """Running means of the gradient and of its square."""
    mean, square = slots
    mean += s["mean_part"] * (g - mean)
    square += s["square_part"] * (np.square(g) - square)
    return mean, square


def _adam(g: Array, slots: list[Array], s: Scalars) -> Array:
    mean, square = _moments(g, slots, s)
    return mean / (np.sqrt(square) + s["eps"])


def _lazy_adam(g: Array, slots: list[Array], s: Scalars) -> Array:
    there = g != 0
    before = [slot.copy() for slot in slots]
    change = _adam(g, slots, s)
    for slot, old in zip(slots, before, strict=True):
        np.copyto(slot, old, where=~there)
    return np.where(there, change, g)


def _nadam(g: Array, slots: list[Array], s: Scalars) -> Array:
    mean, square = _moments(g, slots, s)
    return (s["of_gradient"] * g + s["of_mean"] * mean) / (np.sqrt(square * s["spread"]) + s["eps"])


_MOMENTS = """
    slot0 = slot0 + mean_part * (g - slot0);
    slot1 = slot1 + square_part * (g * g - slot1);
"""

_ADAM = {
    "mean_part": "1 - beta1",
    "square_part": "1 - beta2",
    "rate": "rate * sqrt(1 - pow(beta2, n)) / (1 - pow(beta1, n))",
}

OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": Optimizer(
        lambda g, slots, s: g, KernelText("g"), slots=0, operations=3, memoryless=True, hardware=""
    ),
    "momentum": Optimizer(
        _momentum,
        KernelText("""
            slot0 = slot0 * momentum + g;
            return slot0;
        """),
        slots=1,
        operations=5,
        hardware="",
    ),
    "adam": Optimizer(
        _adam,
        KernelText(_MOMENTS + "    return slot0 / (square_root(slot1) + eps);\n"),
        slots=2,
        operations=12,
        scalars=_ADAM,
    ),
    "lazy_adam": Optimizer(
        _lazy_adam,
        KernelText("""
            slot0 = g == 0.0f ? slot0 : slot0 + mean_part * (g - slot0);
            slot1 = g == 0.0f ? slot1 : slot1 + square_part * (g * g - slot1);
            return g == 0.0f ? g : slot0 / (square_root(slot1) + eps);
        """),
        slots=2,
        operations=12,
        scalars=_ADAM,
        memoryless=True,
    ),
    "adagrad": Optimizer(
        _adagrad,
        KernelText("""
            slot0 = slot0 + g * g;
            return g / (square_root(slot0) + eps);
        """),
        slots=1,
        operations=7,
        memoryless=True,
    ),
    "nadam": Optimizer(
        _nadam,
        KernelText(
            _MOMENTS
            + "    return (of_gradient * g + of_mean * slot0) / (square_root(slot1 * spread) + eps);\n"
        ),
        slots=2,
        operations=15,
        scalars={
            "mean_part": "1 - beta1",
            "square_part": "1 - beta2",
            "decay": "beta1 * (1 - 0.5 * pow(0.96, 0.004 * n))",
            "next_decay": "beta1 * (1 - 0.5 * pow(0.96, 0.004 * (n + 1)))",
            "decays": "decays * decay",
            "of_gradient": "(1 - decay) / (1 - decays)",
            "of_mean": "next_decay / (1 - decays * next_decay)",
            "spread": "1 / (1 - pow(beta2, n))",
        },
        state={"decays": 1.0},  # the product of all decays so far
    ),
}
"""By the name that a configuration gives it."""

SCHEDULES = {
    "constant": "1",
    "step": "pow(gamma, floor(progress))",
    "exponential": "pow(gamma, progress)",
    "cosine": "0.5 * (1 + cos(3.141592653589793 * min(1.0, progress)))",
}
"""Factor on the learning rate: progress is the number of updates before this one over `schedule_steps`."""

WARMUP = "min(1.0, n / max(1.0, warmup))"
"""Factor while the learning rate rises; n is the update's number, from 1."""
