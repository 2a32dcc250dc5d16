"""Section `[update]`, also of one node: `[update.nodes.NODE]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from amphw.ir.config_fields import check_section, option
from amphw.ir.optimizers import OPTIMIZERS, SCHEDULES


@dataclass(frozen=True)
class UpdateConfig:
    """How a node with parameters turns its gradients into updates."""

    min_update_interval: int = option(
        32,
        "gradient rows that a node gathers before it updates",
        minimum=1,
        aliases=("min_update_frequency",),
    )
    optimizer: str = option("sgd", "rule of the update", choices=OPTIMIZERS)
    lr: float = option(0.1, "learning rate", above=0)
    momentum: float = option(0.9, "decay of the velocity, for momentum", minimum=0, below=1)
    beta1: float = option(0.9, "decay of the first moment, for adam", minimum=0, below=1)
    beta2: float = option(0.999, "decay of the second moment, for adam", minimum=0, below=1)
    eps: float = option(1e-8, "added to the denominator, for adam and adagrad", above=0)
    weight_decay: float = option(0.0, "times the parameter, added to its gradient", minimum=0)
    clip: float = option(0.0, "largest L2 norm of the gradient of a parameter; 0: no limit", minimum=0)
    reduce: Literal["sum", "mean"] = option("mean", "how the gathered rows become one gradient")
    schedule: str = option("constant", "course of the learning rate", choices=SCHEDULES)
    schedule_steps: int = option(
        1000, "updates per factor gamma (step, exponential), or until the rate is 0 (cosine)", minimum=1
    )
    schedule_gamma: float = option(0.5, "factor of step and exponential", above=0, maximum=1)
    warmup: int = option(0, "updates over which the learning rate rises from 0", minimum=0)

    def __post_init__(self) -> None:
        check_section(self, "update")
