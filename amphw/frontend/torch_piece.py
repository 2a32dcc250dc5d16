"""A piece of a module: what a function computes with its parameters, in place of its `forward`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from amphw.frontend.source import FrontendError


def piece_of(module: Any, forward: Callable[..., Any], torch: Any) -> Any:
    """A module around `module`, under the name `cell`, whose forward function is `forward` of it.

    forward: a function of the module and of one operand or more. Raises FrontendError where it is not.
    """
    if not inspect.isfunction(forward) or len(inspect.signature(forward).parameters) < 2:
        raise FrontendError(
            f"forward is a function of the module and of its operands, such as lambda m, x: m.norm(x); got "
            f"{forward!r}"
        )

    def of_the_module(self: Any, *operands: Any) -> Any:
        return forward(self.cell, *operands)

    # torch.fx reads the operands' names from the function that is wrapped, and passes over the first, `self`.
    of_the_module.__wrapped__ = forward  # type: ignore[attr-defined]
    made = type("Piece", (torch.nn.Module,), {"forward": of_the_module})()
    made.cell = module
    return made


def is_read(path: str, nodes: Iterable[Any]) -> bool:
    """Whether nodes of a trace read the tensor at this path: itself, or as one of a module that they call."""
    read = [str(n.target) for n in nodes if n.op in ("get_attr", "call_module")]
    return any(path == r or path.startswith(f"{r}.") for r in read)
