"""The exponential moving average of parameters over updates, which is often better than the last of them.

Polyak and Juditsky (1992) average what an optimiser goes through; with weights that decay, old parameters are
forgotten. The average is debiased as Adam's moments are (arXiv 1412.6980, section 3): after n updates the
parameters of update i have the weight (1 - d) d^(n-i) / (1 - d^n). These weights add up to one, so that the
initial parameters, which TensorFlow's `ExponentialMovingAverage` begins with, have none, and the average is
worth something long before 1 / (1 - d) updates. PyTorch's `AveragedModel` with `get_ema_multi_avg_fn` begins
with the first update as well, but leaves it the weight d^(n-1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from amphw.ir.update import NodeParameters


@dataclass
class MovingAverage:
    """decay: d, in 0..1. updates: n. values: by node and parameter, empty before the first update.

    They are in double precision: in float32 a step of 1 - d of a small difference would be rounded away.
    """

    decay: float
    updates: int = 0
    values: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)

    def advance(self, parameters: Mapping[str, NodeParameters]) -> None:
        """One update has made these of all nodes' parameters."""
        self.updates += 1
        if self.updates == 1:
            self.values = {
                node: {name: value.astype(np.float64) for name, value in p.values.items()}
                for node, p in parameters.items()
            }
            return
        share = (1.0 - self.decay) / (1.0 - self.decay**self.updates)
        for node, p in parameters.items():
            for name, value in p.values.items():
                average = self.values[node][name]
                average += share * (value - average)

    def copied(self) -> MovingAverage:
        """One of its own."""
        values = {n: {name: v.copy() for name, v in own.items()} for n, own in self.values.items()}
        return MovingAverage(self.decay, self.updates, values)
