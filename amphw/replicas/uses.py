"""Which settings of `[replicas]` a strategy has a use for; whoever gives it another one is told why."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from amphw.host.config import ReplicasConfig
from amphw.ir.config_fields import NONE, ConfigError, options


@dataclass(frozen=True)
class Use:
    """strategies: those that have a use for the setting. otherwise: what is so of all others."""

    strategies: tuple[str, ...]
    otherwise: str


_SERVED = ("hybrid", "servers")
_ASYNC = "servers-async"
_IN_STEP = ("hybrid", "allreduce", "servers")
_PARTIAL = ("ako", "all-to-all")
_APART = ("average", "group", "outer", *_PARTIAL, _ASYNC)

USES = {
    "servers": Use((*_SERVED, _ASYNC), "it has no servers"),
    "machine_ranks": Use(_SERVED, "no rows go to a server, before which they could be added up"),
    "average_dense": Use(_IN_STEP, "each rank updates on its own, with no mean over all"),
    "average_sparse": Use(_IN_STEP, "each rank updates on its own, with no mean over all"),
    "sparse_from": Use(_IN_STEP, "it exchanges all tables whole"),
    "every": Use(_APART, "it exchanges with each update"),
    "every_updates": Use(_APART, "it exchanges with each update"),
    "wire": Use(
        (*_IN_STEP, "group", *_PARTIAL, _ASYNC),
        "it exchanges parameters alone, of which 16 bits would be all there is",
    ),
    "outer_lr": Use(("outer",), "it has no outer step"),
    "outer_momentum": Use(("outer",), "it has no outer step"),
    "partitions": Use(("ako",), "no gradients are cut into parts"),
    "bandwidth": Use(("ako",), "no gradients are cut into parts, whose number a bandwidth would choose"),
    "staleness": Use(
        (*_PARTIAL, _ASYNC), "it has no bound on how many rounds a rank may be ahead of another one"
    ),
    "accumulate": Use(("ako",), "what a rank sends is all that it has not sent yet"),
    "apply": Use(_PARTIAL, "no rank receives the gradients of a single other one to apply"),
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
            shown = {None: NONE, "": '""'}.get(default, str(default).lower())
            raise ConfigError(
                f"replicas.{name}={value} has no effect with replicas.strategy={strategy}: {use.otherwise}; "
                f"leave it out (or write its default, --set replicas.{name}={shown}), or "
                f"write --set replicas.strategy={' or '.join(use.strategies)}"
            )
