"""The primitives: shape rule, numpy meaning and derivative of each; mathematics is defined here alone.

A primitive's derivative is written in primitives, so an executor that lowers the forward direction has
lowered the backward one too. `vjp` receives a `Tape` that hands out the forward values it may use (they
become residuals) and records the gradient terms of parameters.
"""

from amphw.ir.primitives import attention, columns, elementwise, images, integers, parameters, rows
from amphw.ir.primitives.base import PRIMITIVES, Primitive, Recipe, RowContext, ValueType

__all__ = [
    "PRIMITIVES",
    "Primitive",
    "Recipe",
    "RowContext",
    "ValueType",
    "attention",
    "columns",
    "elementwise",
    "images",
    "integers",
    "parameters",
    "rows",
]
