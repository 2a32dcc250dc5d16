"""A program that was written elsewhere, as a part of a model: its operands' lengths, and its layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amphw.frontend.flow import Flow, Step
from amphw.frontend.flow_layers import Block, Blocks
from amphw.frontend.flow_run import Run
from amphw.frontend.index import Dim, dims_of
from amphw.frontend.integer import Integer, items_of
from amphw.frontend.source import FrontendError
from amphw.frontend.tensor import Tensor, messages
from amphw.frontend.trace import current

Limits = Mapping[str, tuple[int, int | None]]
"""By the name of a length the least and the largest that a program is for."""


class ImportedProgram:
    """A program that is called in a model's function, with a layer for each block of it.

    limits: those that the program states. most: a bound for loops that state none.
    """

    differs = "its length must differ, from {small} to {large}"
    """How the program is made for lengths in a range."""

    def __init__(self, flow: Flow, limits: Limits, most: int | None) -> None:
        self._flow, self._limits, self._most = flow, limits, most
        self._blocks = Blocks(flow)
        for block in self._blocks.layers.values():
            block.part_of = self

    @property
    def parts(self) -> Mapping[str, Block]:
        """The layers that it is made of, by name."""
        return self._blocks.layers

    def __call__(self, *operands: Any) -> Any:
        inputs, given = self._flow.inputs, [items_of(x) for x in operands]
        if len(given) != len(inputs):
            names = ", ".join(x.name for x in inputs)
            raise FrontendError(f"the program takes the operands ({names}), got {len(given)}")
        lengths: dict[str, Dim | None] = {}
        for step, x in zip(inputs, given, strict=True):
            self._bind(step, x, lengths)
        self._within(lengths)
        bound = [d for d in lengths.values() if d is not None]
        for step, x in zip(inputs, given, strict=True):
            mapped = [lengths[s] for s in step.symbols]
            around = [d for d in _dims(x) if d not in mapped and d in bound]
            if around:
                raise FrontendError(
                    f"the operand '{step.name}' depends on {around[0].name} ({around[0].why}), along which "
                    "the program goes for another operand; take one of its positions, or reduce it"
                )
        made = Run(self._blocks, lengths, self._most).results(self._flow, given)
        return made[0] if len(made) == 1 else made

    def _bind(self, step: Step, x: Any, lengths: dict[str, Dim | None]) -> None:
        """Which positions the lengths of an operand are."""
        if not isinstance(x, Tensor | Integer) or isinstance(x, Integer) != (step.kind == "int"):
            wanted = "an Integer" if step.kind == "int" else "a value"
            raise FrontendError(f"the operand '{step.name}' of the program is {wanted}, got {x!r}")
        dims = _dims(x)
        width = x.width if isinstance(x, Tensor) else 1
        if width != step.width:
            sizes = list(step.shape or ())
            if len(dims) > len(step.symbols) and len(sizes) and step.width % width == 0:
                raise FrontendError(
                    f"the operand '{step.name}' is {sizes} in the program, specialised to this length, "
                    f"and here it is {width} wide at each {dims[-1].name} ({dims[-1].why}); "
                    + self.differs.format(small=dims[-1].least, large=dims[-1].bound)
                )
            raise FrontendError(
                f"the operand '{step.name}' has {step.width} numbers {sizes} in the program, got {width}"
            )
        symbols = step.symbols
        found: list[Dim | None] = [None] * max(0, len(symbols) - len(dims))
        found += dims[len(dims) - len(symbols) + len(found) :] if symbols else []
        for symbol, dim in zip(symbols, found, strict=True):
            known = lengths.setdefault(symbol, dim)
            if known is not dim and dim is not None and known is not None:
                raise FrontendError(
                    f"the length '{symbol}' of the program is that of {known.name} ({known.why}), and of the "
                    f"operand '{step.name}' that of {dim.name} ({dim.why}); they must be the same positions"
                )
            lengths[symbol] = known or dim

    def _within(self, lengths: Mapping[str, Dim | None]) -> None:
        for symbol, dim in lengths.items():
            least, most = self._limits.get(symbol, (0, None))
            small, large = (1, 1) if dim is None else (dim.least, dim.bound)
            if small < least or (most is not None and large > most):
                upper = "any" if most is None else most
                raise FrontendError(
                    f"the program is for a length '{symbol}' from {least} to {upper}, and here it is from "
                    f"{small} to {large}; " + self.differs.format(small=small, large=large)
                )


def _dims(x: Tensor | Integer) -> list[Dim]:
    """The positions that an operand depends on, turns of loops around apart."""
    turns = current().turns
    return [d for d in dims_of(messages(x) if isinstance(x, Tensor) else x.context) if d not in turns]
