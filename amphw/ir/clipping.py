"""Clipping by the global norm: the L2 norm of all gradients of an update, seen as one vector, has a bound.

As Pascanu et al. (arXiv 1211.5063) clip, and `clip_grad_norm_` of PyTorch and `clip_by_global_norm` of
TensorFlow do: the direction of the update stays. What counts is each node's gradient as its rule reduces
it, the mean over its rows or their sum, before the rule clips it by itself (`UpdateRule.clip`) and adds the
decay. The squares are apart from the factor, so that those who hold parts of the gradients can add up theirs
first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from amphw.ir.exchange import NodeGradient
from amphw.ir.update import UpdateRule, rule_of


def squares(gradients: Mapping[str, NodeGradient], rules: Mapping[str, UpdateRule]) -> float:
    """The sum of the squares of all numbers in the reduced gradients, in double precision.

    rules: by node, those of `Device.load`. Nodes are added up in the order of their names, so that equal
    gradients give equal bits, whoever holds them.
    """
    total = 0.0
    for node in sorted(gradients):
        given = gradients[node]
        own = sum(float(np.sum(np.square(array, dtype=np.float64))) for array in _numbers(given))
        total += own / max(given.rows, 1) ** 2 if rule_of(rules, node).reduce == "mean" else own
    return total


def clip_factor(total_squares: float, clip_norm: float) -> float:
    """What gradients are multiplied by whose squares add up to this; 1.0: they stay. clip_norm: 0: no bound.

    Gradients that are not finite stay, too: the device that applies them names their node.
    """
    norm = math.sqrt(total_squares)
    return clip_norm / norm if clip_norm > 0.0 and clip_norm < norm < math.inf else 1.0


def scale(gradients: Mapping[str, NodeGradient], factor: float) -> None:
    """In place."""
    if factor != 1.0:
        for given in gradients.values():
            for array in _numbers(given):
                array *= array.dtype.type(factor)


def _numbers(gradient: NodeGradient) -> list[np.ndarray]:
    return [*gradient.arrays.values(), *(rows.values for rows in gradient.tables.values())]
