"""Updates: when a node updates its parameters, and how. Defined once for every executor that runs in floats.

A node counts the gradient rows it has accumulated; with `interval` or more it updates itself and publishes a
new version. What an optimiser makes of a gradient is its row in `amphw.ir.optimizers`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from amphw.ir.errors import AmphwError
from amphw.ir.optimizers import OPTIMIZERS, SCHEDULES, SETTINGS, WARMUP, Optimizer, evaluated
from amphw.ir.program import ParamSpec


@dataclass(frozen=True)
class UpdateRule:
    """One node's update rule.

    interval: `min_update_interval`, in gradient rows. reduce: "mean" divides the sum by the rows counted.
    clip: largest L2 norm of each parameter's gradient (0: off). weight_decay: adds `weight_decay * w` to the
    gradient. schedule: factor on lr after `n` updates: step multiplies by gamma every `schedule_steps`;
    exponential is gamma ** (n / schedule_steps); cosine falls to 0 over schedule_steps. warmup: updates over
    which lr rises linearly.
    """

    interval: int = 1
    optimizer: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip: float = 0.0
    reduce: str = "mean"
    schedule: str = "constant"
    schedule_steps: int = 1000
    schedule_gamma: float = 0.5
    warmup: int = 0

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("optimizer", self.optimizer, OPTIMIZERS),
            ("schedule", self.schedule, SCHEDULES),
            ("reduce", self.reduce, ("sum", "mean")),
        ):
            if value not in allowed:
                raise AmphwError(f"update rule: {name} = '{value}', allowed is {', '.join(allowed)}")
        if self.interval < 1:
            raise AmphwError(f"update rule: interval = {self.interval}, allowed is 1 or more (gradient rows)")

    def rate(self, updates: int) -> float:
        """Learning rate of update number `updates` (from 0)."""
        progress = updates / max(1, self.schedule_steps)
        factor = evaluated(SCHEDULES[self.schedule], {"progress": progress, "gamma": self.schedule_gamma})
        return self.lr * factor * evaluated(WARMUP, {"n": updates + 1, "warmup": self.warmup})

    @property
    def row(self) -> Optimizer:
        """What is known of its optimiser."""
        return OPTIMIZERS[self.optimizer]

    def slots(self) -> int:
        """Optimiser arrays as large as the parameter."""
        return self.row.slots

    def operations(self) -> int:
        """Floating-point operations of an update for each number, mean included; clipping and decay not."""
        return self.row.operations

    def scalars(self, updates: int, state: dict[str, float]) -> dict[str, float]:
        """The numbers of update number `updates` (from 0), by name; `state` moves on."""
        given = {name: float(getattr(self, name)) for name in SETTINGS}
        return self.row.computed({**given, "rate": self.rate(updates), "n": updates + 1}, state)

    def _clipping(self, g: np.ndarray) -> float:
        """What `clip` multiplies this reduced gradient by."""
        if self.clip <= 0.0:
            return 1.0
        norm = float(np.sqrt(np.sum(np.square(g, dtype=np.float64))))
        return self.clip / norm if norm > self.clip else 1.0

    def clipped(self, gradients: Mapping[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
        """A node's summed gradients over `rows` rows, scaled to what an update takes after `clip`."""
        if self.clip <= 0.0:
            return dict(gradients)
        over = max(rows, 1) if self.reduce == "mean" else 1
        return {n: g * g.dtype.type(self._clipping(g / g.dtype.type(over))) for n, g in gradients.items()}

    def bytes(self, specs: Sequence[ParamSpec]) -> int:
        """Of parameters of these shapes in float32, with their gradients and the optimiser's arrays."""
        return 4 * (2 + self.slots()) * sum(math.prod(spec.shape) for spec in specs)

    def step(
        self, w: np.ndarray, g: np.ndarray, slots: list[np.ndarray], rows: int, scalars: Mapping[str, float]
    ) -> np.ndarray:
        """The new parameter (a new array); `slots` change in place. g: summed gradient over `rows` rows."""
        if self.reduce == "mean":
            g = g / w.dtype.type(max(rows, 1))
        factor = self._clipping(g)
        if factor != 1.0:
            g = g * w.dtype.type(factor)
        if self.weight_decay > 0.0:
            g = g + w.dtype.type(self.weight_decay) * w
        numbers = {name: w.dtype.type(value) for name, value in scalars.items()}
        moved: np.ndarray = w - numbers["rate"] * self.row.change(g, slots, numbers)
        return moved


@dataclass
class Applied:
    """What a node's updates have applied by themselves: how many updates and rows these were, and by
    parameter the sum of their gradients, each as summed over its rows and then clipped by the rule."""

    rows: int
    updates: int
    arrays: dict[str, np.ndarray]

    def add(self, rows: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Another update."""
        self.rows, self.updates = self.rows + rows, self.updates + 1
        for name, array in arrays.items():
            self.arrays[name] += array


LATELY = 8
"""Updates whose largest gradients are remembered."""


@dataclass
class NodeParameters:
    """The parameters of one node with all that its updates need.

    values are replaced, never changed in place: whoever holds a version keeps it. lately: the largest
    magnitude in the gradient of each of the last updates, as the rule had it before it was clipped. state:
    the optimiser's scalars that live from update to update. kept: parameters that updates leave alone.
    tells: whether `told` is kept, which is what updates have applied since somebody has taken it.
    """

    specs: tuple[ParamSpec, ...]
    rule: UpdateRule
    values: dict[str, np.ndarray]
    version: int = 0
    rows: int = 0
    slots: dict[str, list[np.ndarray]] = field(default_factory=dict)
    gradients: dict[str, np.ndarray] = field(default_factory=dict)
    lately: deque[float] = field(default_factory=lambda: deque(maxlen=LATELY))
    state: dict[str, float] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    tells: bool = False
    told: Applied | None = None

    def __post_init__(self) -> None:
        self.state = {**self.rule.row.state, **self.state}

    @classmethod
    def initial(
        cls, node: str, specs: tuple[ParamSpec, ...], rule: UpdateRule, seed: int, dtype: type = np.float32
    ) -> NodeParameters:
        """Initial values are a function of (seed, node, parameter) alone."""
        values: dict[str, np.ndarray] = {}
        for spec in specs:
            rng = np.random.default_rng([seed, *f"{node}.{spec.name}".encode()])
            values[spec.name] = spec.initial(rng, dtype)
        return cls.of(specs, rule, values)

    @classmethod
    def of(
        cls, specs: tuple[ParamSpec, ...], rule: UpdateRule, values: dict[str, np.ndarray]
    ) -> NodeParameters:
        def zeros(v: np.ndarray) -> np.ndarray:
            return np.zeros(v.shape, v.dtype)  # takes no memory before it is written, as `zeros_like` does

        slots = {n: [zeros(v) for _ in range(rule.slots())] for n, v in values.items()}
        return cls(specs, rule, values, 0, 0, slots, {n: zeros(v) for n, v in values.items()})

    @property
    def due(self) -> bool:
        return self.rows >= self.rule.interval

    def update(self) -> None:
        """Apply what has been accumulated and publish the next version; without any, change nothing."""
        if self.rows:
            self.note()
            self.publish(self.prepare())

    def note(self) -> str | None:
        """Remember how large the gradients are -> the first parameter whose gradient is not finite."""
        # NaN wins in each of these, and a maximum is cheaper than a test of each element.
        largest = {n: float(max(g.max(), -g.min())) for n, g in self.gradients.items() if g.size}
        largest = {n: value if math.isfinite(value) else math.inf for n, value in largest.items()}
        rows = max(self.rows, 1) if self.rule.reduce == "mean" else 1
        self.lately.append(max(largest.values(), default=0.0) / rows)
        return next((n for n, value in largest.items() if value == math.inf), None)

    def prepare(self) -> dict[str, np.ndarray]:
        """The next version's values; takes the accumulated gradients and moves the optimiser's slots."""
        scalars = self.rule.scalars(self.version, self.state)
        if self.tells:
            self.told = self.told or Applied(0, 0, {n: np.zeros_like(g) for n, g in self.gradients.items()})
            self.told.add(self.rows, self.rule.clipped(self.gradients, self.rows))
        values = dict(self.values)
        for n in values.keys() - self.kept:
            values[n] = self.rule.step(values[n], self.gradients[n], self.slots[n], self.rows, scalars)
        for g in self.gradients.values():
            g[...] = 0
        self.rows = 0
        return values

    def publish(self, values: dict[str, np.ndarray]) -> None:
        """Make prepared values current: one assignment, so readers see one version or the other."""
        self.values = values
        self.version += 1

    def copied(self) -> NodeParameters:
        """A state of its own. A rule may hold what cannot be copied, and does not change."""
        out = NodeParameters(self.specs, self.rule, {}, slots={}, gradients={})
        out.version, out.rows, out.state = self.version, self.rows, dict(self.state)
        out.values = {name: value.copy() for name, value in self.values.items()}
        out.gradients = {name: gradient.copy() for name, gradient in self.gradients.items()}
        out.slots = {name: [slot.copy() for slot in slots] for name, slots in self.slots.items()}
        return out

    def become(self, other: NodeParameters) -> None:
        """Take over another state of the same node, as devices allow it (`Device.parameters`)."""
        self.values = {name: value.copy() for name, value in other.values.items()}
        self.version, self.rows, self.state = other.version, other.rows, dict(other.state)
        for name, gradient in self.gradients.items():
            gradient[...] = other.gradients[name]
        for name, slots in self.slots.items():
            for own, theirs in zip(slots, other.slots[name], strict=True):
                own[...] = theirs

    def bytes(self) -> int:
        """Of all arrays: values, gradients, the optimiser's, and those of `told`."""
        slots = [slot for slots in self.slots.values() for slot in slots]
        told = self.told.arrays.values() if self.told else ()
        return sum(a.nbytes for a in (*self.values.values(), *self.gradients.values(), *slots, *told))

    def tensors(self) -> dict[str, np.ndarray]:
        """Values and optimiser slots by name, for a checkpoint (gradients are empty after a flush)."""
        out = dict(self.values)
        for name, arrays in self.slots.items():
            out.update({f"{name}#slot{i}": a for i, a in enumerate(arrays)})
        return out

    def restore(self, tensors: dict[str, np.ndarray], version: int) -> None:
        """The inverse of `tensors`; raises AmphwError naming what is missing or misshapen."""
        for name in self.tensors():
            have = self.tensors()[name]
            if name not in tensors:
                raise AmphwError(f"the checkpoint has no tensor '{name}'")
            if tensors[name].shape != have.shape:
                raise AmphwError(f"tensor '{name}' has shape {tensors[name].shape}, expected {have.shape}")
        self.values = {n: tensors[n].astype(v.dtype) for n, v in self.values.items()}
        for name, arrays in self.slots.items():
            for i, a in enumerate(arrays):
                a[...] = tensors[f"{name}#slot{i}"]
        self.version, self.rows = version, 0
        for g in self.gradients.values():
            g[...] = 0


def rule_of(rules: Mapping[str, UpdateRule], node: str) -> UpdateRule:
    """A node without a rule of its own has rules["*"]."""
    return rules.get(node) or rules.get("*", UpdateRule())


def initial_parameters(
    owners: dict[str, tuple[ParamSpec, ...]],
    rules: dict[str, UpdateRule],
    seed: int,
    dtype: type = np.float32,
) -> dict[str, NodeParameters]:
    """Parameters of every owning node."""
    return {
        n: NodeParameters.initial(n, specs, rule_of(rules, n), seed, dtype)
        for n, specs in owners.items()
        if specs
    }


def no_parameters(name: str) -> str:
    """What a device says to an update of such a node."""
    return f"node '{name}' owns no parameters to update"
