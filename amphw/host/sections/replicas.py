"""Section `[replicas]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from amphw.ir.config_fields import ConfigError, check_section, option
from amphw.ir.errors import AmphwError
from amphw.ir.units import quantity

Strategy = Literal[
    "hybrid", "allreduce", "servers", "servers-async", "average", "group", "outer", "ako", "all-to-all"
]
AUTO, PROBE = "auto", "probe"


@dataclass(frozen=True)
class ReplicasConfig:
    """How the replicas of a run with several ranks are kept together."""

    strategy: Strategy = option(
        "hybrid",
        "hybrid: gradients of all ranks are added up at each update, in mode sync or pipeline; tables that "
        "are looked up by rows are served by rows; allreduce: without servers; servers: everything is "
        "served; servers-async: the same in every mode, and servers update with each rank's gradients as "
        "they come; average: ranks update on their own, and parameters are averaged; group: the same by "
        "messages, for which no rank waits; outer: what ranks have moved by is the gradient of an outer "
        "step; ako: ranks update on their own and send all others a part of their gradients in each round; "
        "all-to-all: the same, with whole gradients",
    )
    servers: int = option(
        0,
        "for hybrid, servers and servers-async: the last so many ranks serve and do not train; 0: all do "
        "both",
        minimum=0,
    )
    machine_ranks: int = option(
        1, "ranks of one machine, neighbours, whose rows are added up before they go to a server", minimum=1
    )
    average_dense: bool = option(
        True, "for hybrid, allreduce and servers: false adds up the means of the ranks; of dense parameters"
    )
    average_sparse: bool = option(True, "the same of tables that are looked up by rows")
    sparse_from: int = option(
        256 * 1024,
        "a node's tables are exchanged by rows where a rank leaves so many bytes of them unread in a window; "
        "others are exchanged whole, which takes less time on links of 1 Gb/s or more",
        minimum=0,
    )
    every: int = option(
        0,
        "for average, outer, group, ako, all-to-all and servers-async: instances of each rank between two "
        "exchanges; 0: once an epoch, with group every 50, with the last three as many as are in flight at "
        "once",
        minimum=0,
    )
    every_updates: int = option(
        0,
        "the same in updates, on average over the nodes with parameters; 0: by replicas.every",
        minimum=0,
    )
    wire: Literal["full", "float16", "bfloat16"] = option(
        "full",
        "for all but average and outer: the numbers in which values are sent; full: those that are computed; "
        "float16 saturates at 65,504, bfloat16 has fewer digits",
    )
    outer_lr: float = option(0.7, "for outer: learning rate of the outer step", above=0)
    outer_momentum: float = option(0.9, "for outer: decay of the outer velocity", minimum=0, below=1)

    partitions: str = option(
        AUTO,
        "for ako: into how many partitions gradients are cut, of which each other rank gets one in a round; "
        "auto: as many as replicas.bandwidth asks for, and without it as many as there are ranks",
    )
    bandwidth: str = option(
        "",
        "for ako with partitions=auto: what a rank can send, such as 1Gb/s, or probe: ranks try it when they "
        "begin; how fast gradients come is measured",
    )
    staleness: int | None = option(
        None,
        "for ako, all-to-all and servers-async: tau; a rank begins no round when it is further ahead of the "
        "slowest other one than partitions (if there are any) and tau together; none: as many rounds as "
        "ranks train",
        minimum=0,
    )
    accumulate: bool = option(
        True,
        "for ako: a partition is that of the sum of all gradients since it was sent last; false: of the last "
        "round's alone, and the others are lost to who gets it, to see what that costs",
    )
    apply: Literal["paper", "mean"] = option(
        "paper",
        "for ako and all-to-all, what becomes of received gradients; paper: each is an update of its own; "
        "mean: they join the next update, with the rows that they are over",
    )

    def __post_init__(self) -> None:
        check_section(self, "replicas")
        self._check_partitions()
        if self.every and self.every_updates:
            raise ConfigError(
                f"replicas.every is {self.every} instances and replicas.every_updates {self.every_updates} "
                "updates between two exchanges, and which of the two comes first would change from one "
                "exchange to the next; give one, and set the other to 0."
            )

    def _check_partitions(self) -> None:
        """Raise ConfigError for a number of partitions, or what chooses it, that makes no sense."""
        if self.partitions != AUTO and not (self.partitions.isdecimal() and int(self.partitions) > 0):
            raise ConfigError(
                f"replicas.partitions is {self.partitions!r}, expected {AUTO} or an integer of 1 or more"
            )
        if not self.bandwidth:
            return
        try:
            if self.bandwidth != PROBE:
                quantity(self.bandwidth, "bits a second")
        except AmphwError as error:
            raise ConfigError(f"replicas.bandwidth: {error}") from None
        if self.partitions != AUTO:
            raise ConfigError(
                "replicas.bandwidth chooses the number of partitions, which "
                f"replicas.partitions={self.partitions} says already; leave one of them out"
            )
