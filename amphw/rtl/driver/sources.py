"""Sources run on the host: what they send is in the instance."""

from __future__ import annotations

import numpy as np

from amphw.engine.lowering.lower import Path, Unit
from amphw.engine.lowering.plan import PathTable
from amphw.ir.instance import Instance


class SourceUnit:
    """One source of the graph."""

    def __init__(self, unit: Unit):
        self.unit = unit

    def payload(self, instance: Instance, path: Path, table: PathTable, delivery: int) -> np.ndarray:
        """What a delivery of one of its paths carries: float32 [rows, width]."""
        name = self.unit.behaviour.emits[0].data
        assert table.data is not None
        first, rows = int(table.data[0][delivery]), int(table.data[1][delivery])
        if name is None:
            sent = np.zeros((rows, 0), np.float32)
        else:
            sent = np.asarray(instance.data[name][first : first + rows], np.float32)
        row = int(table.row[delivery])
        return sent if row < 0 else sent[row : row + 1]
