"""Errors of the intermediate representation: each says what was wrong, where, and what to do."""

from __future__ import annotations


class AmphwError(Exception):
    """Base of every error that amphw raises on purpose."""


class GraphError(AmphwError):
    """A graph that cannot run: found by the static checks, before anything executes."""

    def __init__(
        self, message: str, *, node: str | None = None, port: str | None = None, field: str | None = None
    ):
        where = " ".join(
            part
            for part in (
                f"node '{node}'" if node else "",
                f"port '{port}'" if port else "",
                f"field '{field}'" if field else "",
            )
            if part
        )
        super().__init__(f"{where}: {message}" if where else message)
        self.node, self.port, self.field = node, port, field


class ProgramError(AmphwError):
    """A program whose operands do not fit together."""


class InstanceError(AmphwError):
    """An instance whose tables break what the schema declares."""


class StateError(AmphwError):
    """A state outside its domain, or an index outside its table, met while running."""


class ExecutionError(AmphwError):
    """A broken invariant while running: a doubled state, a lost or unexpected message."""


class DeviceAbsentError(AmphwError):
    """A device that is not there, or that lacks something here; in a run with others, the CPU replaces it."""


class DeviceLostError(AmphwError):
    """A device that cannot go on: it failed, is gone, or has run out of memory.

    What was in flight on it is lost, and so are parameters that have not been fetched. The graph may
    be loaded on another device, or again on the same object.
    """


class NonFiniteError(AmphwError):
    """A NaN or infinite value; names the first node that produced it."""

    def __init__(self, node: str, direction: str, what: str):
        super().__init__(
            f"node '{node}' produced a non-finite value in its {direction} direction ({what}); "
            "lower the learning rate, set update.clip, or look at the instance's data"
        )
        self.node, self.direction = node, direction
