"""What a data plane computes with: the seam between what becomes of messages and the numbers in them.

The plane cuts, joins and delivers *payloads*, arrays [rows, width] of the arithmetic's dtype, counts gradient
rows and versions, and keeps the order of things. What is computed with payloads, and how a node's parameters
are kept, is the arithmetic's business. Units that report (losses) are the exception: whatever the arithmetic,
they compute in float32, and what reaches or leaves them is converted. An operand that sources alone feed
arrives there as it is, since a label need not be a number that a payload can hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np

from amphw.engine.lowering.lower import Unit
from amphw.ir.primitives import RowContext
from amphw.ir.update import NodeParameters

Kind = Literal["value", "gradient"]
"""Forward messages carry values, backward ones gradients."""

Entry = tuple[int, list[tuple[np.ndarray | None, np.ndarray]]]
"""(gradient rows, (a, dz) for each of the derivative's terms) of one backward frame."""

Part = tuple[np.ndarray, int]
"""(gradient that came back, the row that it belongs to; -1: to all rows)."""


class Runnable(Protocol):
    """A program that is ready to run."""

    def run(
        self,
        ctx: RowContext,
        inputs: Sequence[np.ndarray],
        ints: Sequence[np.ndarray],
        params: Mapping[str, np.ndarray],
    ) -> list[np.ndarray]:
        """As `Program.run`. Inputs belong to others and stay as they are; params: `UnitParameters.values`."""
        ...


class Kernels(NamedTuple):
    """A unit's `derivative.forward`, `inference` and `derivative.backward` (None: it has no outputs)."""

    forward: Runnable
    inference: Runnable
    backward: Runnable | None


class UnitParameters(Protocol):
    """A node's parameters as an arithmetic holds them. `params` is the host's copy, in floats.

    The plane counts gradient rows in `params.rows` and reads `params.version` and `params.rule`. At any time
    one thread at most is inside `accumulate` or `prepare`; `values` is read beside them.
    """

    node: str
    params: NodeParameters

    @property
    def values(self) -> Mapping[str, np.ndarray]:
        """The current version, for frames. Replaced, never changed in place: a frame keeps its own."""
        ...

    def accumulate(self, entries: Sequence[Entry]) -> None:
        """Add the gradients of logged frames, in the order in which they were committed."""
        ...

    def prepare(self) -> dict[str, np.ndarray]:
        """The next version; takes what has been accumulated, and sets `params.rows` to 0."""
        ...

    def publish(self, values: dict[str, np.ndarray]) -> None:
        """Make a prepared version current, and count it in `params.version`."""
        ...

    def fetch(self) -> None:
        """Bring values, slots and gradients of `params` up to date."""
        ...

    def push(self) -> None:
        """Take over the values, slots and gradients of `params`, into which the host may have written.

        What it has not changed since `fetch` must stay as it was, to the bit.
        """
        ...


class Arithmetic(Protocol):
    """Numbers of one kind. dtype: of payloads."""

    dtype: np.dtype

    def kernels(self, unit: Unit) -> Kernels: ...

    def parameters(self, unit: Unit, params: NodeParameters) -> UnitParameters: ...

    def to_payload(self, values: np.ndarray, kind: Kind) -> np.ndarray:
        """Payload of numbers: data rows of a source, and the gradients that a loss sends back (float32)."""
        ...

    def to_float(self, payload: np.ndarray, kind: Kind) -> np.ndarray:
        """The inverse, float32: what a loss reads."""
        ...

    def total(self, parts: Sequence[Part], rows: int, width: int) -> np.ndarray:
        """Sum of the gradients that came back for one output, in this order; zeros where there are none."""
        ...


def stacked(entries: Sequence[Entry], term: int) -> tuple[np.ndarray | None, np.ndarray]:
    """(a, dz) of one term over all entries, of which there is at least one."""
    parts = [terms[term] for _, terms in entries]
    if len(parts) == 1:
        return parts[0]
    a = [p[0] for p in parts if p[0] is not None]
    return (np.concatenate(a) if a else None), np.concatenate([p[1] for p in parts])
