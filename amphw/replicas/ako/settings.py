"""Partial gradient exchange as settings ask for it."""

from __future__ import annotations

from typing import Any

from amphw.host.config import RunConfig
from amphw.host.sections.replicas import AUTO, PROBE
from amphw.ir.config_fields import ConfigError
from amphw.ir.units import quantity
from amphw.replicas.ako.cost import Measured
from amphw.replicas.ako.strategy import Ako

NAME, WHOLE = "ako", "all-to-all"
_MEASURED = 2.0
"""Seconds over which the rate of gradients is measured; the first p is there after as many."""
USABLE = 0.8
"""Of a link's rate, the share that gradients can have. Links of 90 Mb/s that whole gradients filled had 76
(`all-to-all` in benchmarks/results/ako-links.json), and a link that is never idle holds ranks up."""


def usable(rate: str) -> float:
    """Bytes of gradients a second on a link of this rate, such as 1Gb/s."""
    return USABLE * quantity(rate, "bits a second") / 8


def partitions(cfg: RunConfig[Any], name: str) -> int | None:
    """How many a gradient has with this strategy; None: as many as there are ranks, or what is measured."""
    if name == WHOLE:
        return 1
    return None if cfg.replicas.partitions == AUTO else int(cfg.replicas.partitions)


def ako(cfg: RunConfig[Any], name: str = NAME) -> Ako:
    """One rank's strategy. name: with `all-to-all` gradients go whole."""
    given, wanted = cfg.replicas, partitions(cfg, name)
    measured = None
    if wanted is None and given.bandwidth:
        known = None if given.bandwidth == PROBE else usable(given.bandwidth)
        measured = Measured(known, _MEASURED)
    return Ako(
        name,
        wanted,
        given.staleness,
        given.apply,
        measured,
        tells=cfg.train.mode == "async",
        accumulates=given.accumulate,
    )


def check_ako(cfg: RunConfig[Any]) -> None:
    """Raise ConfigError for what partial gradient exchange cannot do in this mode of training."""
    if cfg.replicas.strategy in (NAME, WHOLE) and cfg.replicas.apply == "mean" and cfg.train.mode == "async":
        raise ConfigError(
            "replicas.apply=mean joins what was received to the next update of all nodes, and with "
            "train.mode=async each node updates on its own; write --set train.mode=pipeline (or sync), or "
            "leave replicas.apply out"
        )
