"""The service order of a run: the decisions that depended on time, as events that another run repeats.

Nodes have the names that they have in the graph (a fused node that of the one whose parameters it took over),
firings their states. So a log means the same to every executor, whatever it numbers inside.

    ("submit", instance, mode)                    an instance is pumped
    ("start", frame, node, kind, firings)         a frame begins, on the parameters that are current; firings:
                                                  (instance, mode, state) each, state a tuple of integers
    ("end", frame)                                its messages are on their way
    ("seal", node, cause)                         the gradient rows counted so far are one sum
    ("reduced", node)                             the update of the seal before it is published
    ("retire", instance, mode)

A gradient row counts from when its frame begins; in a log that opens with ("counts", "ended") from when it
has ended, as on the numpy data plane and in circuits. Frames are numbered from 1 in the order in which they
begin; kind is "forward", "backward", or "infer": forward without what the backward direction needs. cause is
one of CAUSES, mode the value of an `amphw.ir.device.Mode`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amphw.ir.errors import ExecutionError

Event = tuple[Any, ...]
ServiceLog = Sequence[Event]
Run = tuple[int, str]
"""An instance in flight: its number, and the name of its mode."""

SUM, UPDATE, INTERVAL = CAUSES = ("sum", "update", "interval")
"""Why rows were made one sum: it was worth it; an update was asked for; the node's interval was complete. The
last two are published, the first is not."""

COUNTS_ENDED: Event = ("counts", "ended")


_UNLIKE = "it belongs to another graph or to other instances"


class LogEnded(ExecutionError):
    """The log says no more, and instances wait: it is that of a run that was stopped, or of another one."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"replay: the log ends while {waiting} instance(s) are in flight; {_UNLIKE}")


class ReplayDiffers(ExecutionError):
    """The log asks for what the run at hand cannot do: its first decision that differs.

    node, kind, instance, state: of the firing that cannot run; None where it is not about one.
    """

    def __init__(
        self,
        what: str,
        node: str | None = None,
        kind: str | None = None,
        instance: int | None = None,
        state: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(f"replay: the log asks for {what}; {_UNLIKE}")
        self.node, self.kind, self.instance, self.state = node, kind, instance, state


def not_ready(node: str, kind: str, instance: int, state: tuple[int, ...]) -> ReplayDiffers:
    """A firing that has not got all that it waits for, or has run before."""
    which = f"the {kind} firing of node '{node}' for instance {instance} at {state}"
    return ReplayDiffers(f"{which}, which is not ready", node, kind, instance, state)
