"""AllGatherv: ranks get the rows of all ranks, and add them up in their order (Parallax, section 2.2)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from amphw.ir.exchange import Rows, added
from amphw.replicas.collectives import all_gather, all_reduce
from amphw.replicas.packed import Traffic
from amphw.replicas.transport import Transport


def gather_rows(transport: Transport, tables: Mapping[str, Rows], traffic: Traffic) -> dict[str, Rows]:
    """The sums of all ranks' rows, by table; they have the same names on each."""
    names, n = sorted(tables), transport.ranks
    if not names:
        return {}
    counts = np.zeros((n, len(names)), np.int64)
    counts[transport.rank] = [len(tables[name].numbers) for name in names]
    all_reduce(transport, counts.reshape(-1))
    out = {}
    for k, name in enumerate(names):
        mine, width = tables[name], tables[name].values.shape[1]
        sizes = counts[:, k]
        numbers = all_gather(transport, mine.numbers, sizes.tolist())
        values = all_gather(transport, mine.values.reshape(-1), (sizes * width).tolist())
        parts = [Rows(m, v.reshape(-1, width)) for m, v in zip(numbers, values, strict=True)]
        out[name] = added(parts)
        row, all_rows = width * mine.values.itemsize, int(sizes.sum())
        after = int(sizes[(transport.rank + 1) % n])  # the ring does not bring a rank's own back to it
        traffic.count(name, (all_rows - after) * row, (all_rows - len(mine.numbers)) * row)
    return out
