"""Which settings of `[replicas]` a strategy has a use for; whoever gives it another one is told why."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from amphw.host.config import ReplicasConfig
from amphw.ir.config_fields import ConfigError, options


@dataclass(frozen=True)
class Use:
    """strategies: those that have a use for the setting. otherwise: what is so of all others."""

    strategies: tuple[str, ...]
    otherwise: str


_SERVED = ("hybrid", "servers")
_IN_STEP = ("hybrid", "allreduce", "servers")
_APART = ("average", "group", "outer")

USES = {
    "servers": Use(_SERVED, "it has no servers"),
    "machine_ranks": Use(_SERVED, "no rows go to a server, before which they could be added up"),
    "average_dense": Use(_IN_STEP, "it adds up no gradients: each rank updates on its own"),
    "average_sparse": Use(_IN_STEP, "it adds up no gradients: each rank updates on its own"),
    "sparse_from": Use(_IN_STEP, "it exchanges all tables whole"),
    "every": Use(_APART, "it exchanges with each update"),
    "every_updates": Use(_APART, "it exchanges with each update"),
    "wire": Use(
        (*_IN_STEP, "group"), "it exchanges parameters alone, of which 16 bits would be all there is"
    ),
    "outer_lr": Use(("outer",), "it has no outer step"),
    "outer_momentum": Use(("outer",), "it has no outer step"),
}
"""By setting, all but `strategy` itself."""


def check_uses(given: ReplicasConfig, besides: Collection[str] = ()) -> None:
    """Raise ConfigError for a setting that is not at its default and has no effect with this strategy.

    besides: settings that the caller has a use for, whatever the strategy.
    """
    strategy = given.strategy
    for name, use in USES.items():
        value, default = getattr(given, name), options(ReplicasConfig)[name].default
        if value != default and name not in besides and strategy not in use.strategies:
            raise ConfigError(
                f"replicas.{name}={value} has no effect with replicas.strategy={strategy}: {use.otherwise}; "
                f"leave it out (or write its default, --set replicas.{name}={str(default).lower()}), or "
                f"write --set replicas.strategy={' or '.join(use.strategies)}"
            )
