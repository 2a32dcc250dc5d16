"""Weights outside of their format are clipped with a warning, or refused."""

from __future__ import annotations

import warnings

import numpy as np

from amphw.ir.errors import GraphError
from amphw.ir.update import NodeParameters
from amphw.rtl.fixed.meters import holding
from amphw.rtl.fixed.parameters import FixedParameters


class FormatWarning(UserWarning):
    """Numbers that a format cannot hold have been clipped."""


def tell_clipped(fixed: FixedParameters, given: NodeParameters, strict: bool) -> None:
    """Warn of each of the given parameters that was clipped, or raise GraphError with `strict`."""
    f = fixed.formats.weight
    for name, a in fixed.arrays.items():
        if not a.clipped:
            continue
        w = given.values[name]
        low, high = float(np.nanmin(w)), float(np.nanmax(w))
        text = (
            f"{a.clipped} of {w.size} weights of '{name}' lie outside {f}, which holds {f.low * f.step:g} .. "
            f"{f.high * f.step:g}: they go from {low:g} to {high:g}"
        )
        remedy = f"w={holding(low, high)} in the number formats holds them"
        if strict:
            raise GraphError(f"{text}; {remedy}", node=fixed.node)
        warnings.warn(f"node '{fixed.node}': {text} and were clipped; {remedy}", FormatWarning, stacklevel=3)
