"""Section `[train]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from amphw.ir.config_fields import ConfigError, check_section, option

_MAX_KEYS = 4096


@dataclass(frozen=True)
class TrainConfig:
    """How instances are pumped, and for how long."""

    epochs: int = option(20, "passes over the training set", minimum=1)
    target: float | None = option(
        None, "validation score to stop at: accuracy in 0..1, or the error of a regression model", minimum=0
    )
    patience: int = option(0, "epochs without improvement after which to stop; 0: never", minimum=0)
    seed: int = option(0, "seed of initial parameters, data order and dropout", minimum=0)
    mode: Literal["async", "sync", "pipeline"] = option(
        "async", "async: nodes update on their own; sync: one batch at a time; pipeline: a window of batches"
    )
    pipeline_depth: int = option(4, "batches in flight in pipeline mode", minimum=1, maximum=_MAX_KEYS)
    max_active_keys: int = option(16, "instances in flight while training", minimum=1, maximum=_MAX_KEYS)
    max_infer_keys: int = option(16, "instances in flight while validating", minimum=1, maximum=_MAX_KEYS)
    clip_norm: float = option(
        0.0,
        "largest L2 norm of the gradients of all parameters together, in mode sync or pipeline; 0: no limit",
        minimum=0,
    )
    average: float = option(
        0.0,
        "decay of a moving average of the parameters, which is validated, kept and predicted with, in mode "
        "sync or pipeline, such as 0.999; 0: none",
        minimum=0,
        below=1,
    )
    live_valid: int = option(
        0, "validation instances kept in flight beside training; 0: none", minimum=0, maximum=_MAX_KEYS
    )
    pump: Literal["greedy", "staleness"] = option(
        "greedy", "greedy: pump while a key is free; staleness: hold back above max_staleness"
    )
    max_staleness: float = option(4.0, "updates between a message's forward and backward pass", minimum=0)
    train_instances: int = option(0, "training instances to use; 0: all", minimum=0)
    valid_instances: int = option(0, "validation instances to use; 0: all", minimum=0)
    checkpoint_every: int = option(1, "epochs between checkpoints; 0: none", minimum=0)
    checkpoint_minutes: float = option(
        5.0, "minutes after which a checkpoint is taken within an epoch as well; 0: never", minimum=0
    )
    trace: bool = option(True, "record what ran where and when")

    def __post_init__(self) -> None:
        check_section(self, "train")
        if self.live_valid > self.max_infer_keys:
            raise ConfigError(
                f"train.live_valid is {self.live_valid}, but train.max_infer_keys, the slots that validation "
                f"has, is {self.max_infer_keys}; lower the one or raise the other."
            )
        if self.mode == "async":
            self._check_asynchronous()

    def _check_asynchronous(self) -> None:
        """Raise ConfigError for what has no meaning where every node updates on its own."""
        instead = "write --set train.mode=pipeline (or sync)"
        if self.clip_norm:
            raise ConfigError(
                f"train.clip_norm is {self.clip_norm}, the largest norm of all gradients of an update, but "
                "with train.mode=async every node updates on its own, when others have no gradients yet; "
                f"{instead}, or update.clip, which limits the gradient of each parameter."
            )
        if self.average:
            raise ConfigError(
                f"train.average is {self.average}, the decay of an average over updates of all parameters, "
                "but with train.mode=async every node updates on its own, not as often as others; "
                f"{instead}, or leave train.average out."
            )
