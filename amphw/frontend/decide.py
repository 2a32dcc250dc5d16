"""Observe: a number that the network computed becomes a field of the state, and the state decides the way."""

from __future__ import annotations

from amphw.frontend.tensor import Tensor
from amphw.frontend.trace import current
from amphw.frontend.values import concat
from amphw.ir import functions as f
from amphw.ir.expr import Field
from amphw.ir.graph import PortRef
from amphw.ir.nodes import Observe
from amphw.ir.program import Value, trace
from amphw.ir.routing import Cond
from amphw.ir.state import state_field


def observe(payload: Tensor, scores: Tensor, branches: int, name: str) -> list[PortRef]:
    """Send the payload on to the branch that the scores choose -> the outputs, of the Cond `name`.

    scores: as many as there are branches, of which the largest wins (the first of equals); or a single one,
    which chooses branch 1 where it is above 0. In the same context as the payload, one row a message.
    """
    t, width = current(), payload.width

    def decide(x: Value) -> tuple[Value, Value]:
        s = f.columns(x, width, scores.width)
        return f.columns(x, 0, width), f.above(s, 0.0) if scores.width == 1 else f.argmax(s)

    both = concat(payload, scores)
    decided = state_field(t.name("decided"), branches)
    seen = t.emit(Observe(t.name("observe"), trace(decide, {"x": both.width}), decided), {"x": both.port})
    ports = tuple(f"case{k}" for k in range(branches))
    # Behind a port the decision is known, so the field need not go any further.
    cond = Cond(name, Field(decided.name), ports, drop=(decided.name,))
    t.emit(cond, {"in": (seen, "out")})
    return [(cond.name, port) for port in ports]
