"""AllGatherv: ranks get the rows of all ranks, and add them up in their order (Parallax, section 2.2)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from amphw.ir.exchange import Rows, added
from amphw.replicas.collectives import all_gather
from amphw.replicas.packed import Traffic
from amphw.replicas.transport import Transport
from amphw.replicas.wire import decode, encode


def plan_rows(transport: Transport, tables: Mapping[str, Rows]) -> np.ndarray:
    """int64 [ranks, tables]: how many rows this rank has, zeros for the others; in the order of names."""
    counts = np.zeros((transport.ranks, len(tables)), np.int64)
    counts[transport.rank] = [len(tables[name].numbers) for name in sorted(tables)]
    return counts


def gather_rows(
    transport: Transport, tables: Mapping[str, Rows], counts: np.ndarray, traffic: Traffic
) -> dict[str, Rows]:
    """The sums of all ranks' rows, by table; they have the same names on each. counts: the sum of all ranks'
    plans."""
    out = {}
    for k, name in enumerate(sorted(tables)):
        mine, width = tables[name], tables[name].values.shape[1]
        sizes = counts[:, k]
        numbers = all_gather(transport, mine.numbers, sizes.tolist())
        kind, coded = mine.values.dtype, encode(mine.values.reshape(-1), traffic.wire)
        gathered = all_gather(transport, coded, (sizes * width).tolist())
        values = [decode(each, traffic.wire, kind) for each in gathered]
        parts = [Rows(m, v.reshape(-1, width)) for m, v in zip(numbers, values, strict=True)]
        out[name] = added(parts)
        row, all_rows = width * coded.itemsize, int(sizes.sum())
        after = int(sizes[(transport.rank + 1) % transport.ranks])  # it has its own already
        traffic.count(name, (all_rows - after) * row, (all_rows - len(mine.numbers)) * row)
    return out
