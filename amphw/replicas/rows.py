"""AllGatherv: ranks get the rows of all ranks, and add them up in their order (Parallax, section 2.2)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from amphw.ir.exchange import Rows, added
from amphw.replicas.collectives import all_gather
from amphw.replicas.packed import Traffic, packed, unpacked
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
    plans. The rows of all tables go around in one message of each rank."""
    names = sorted(tables)
    if not names:
        return {}
    widths = [tables[name].values.shape[1] for name in names]
    coded = {name: encode(tables[name].values.reshape(-1), traffic.wire) for name in names}
    kinds = [(tables[name].numbers.dtype, coded[name].dtype) for name in names]
    parts = [
        [
            part
            for count, width, (number, value) in zip(of_rank.tolist(), widths, kinds, strict=True)
            for part in ((number, count), (value, count * width))
        ]
        for of_rank in counts
    ]
    mine = packed([array for name in names for array in (tables[name].numbers, coded[name])])
    sizes = [sum(kind.itemsize * size for kind, size in each) for each in parts]
    gathered = all_gather(transport, mine, sizes)
    every = [unpacked(message, each) for message, each in zip(gathered, parts, strict=True)]
    out, after = {}, (transport.rank + 1) % transport.ranks  # which has its own rows already
    for k, (name, width) in enumerate(zip(names, widths, strict=True)):
        kind = tables[name].values.dtype
        values = [decode(found[2 * k + 1], traffic.wire, kind).reshape(-1, width) for found in every]
        out[name] = added([Rows(found[2 * k], v) for found, v in zip(every, values, strict=True)])
        row, all_rows = width * coded[name].itemsize, int(counts[:, k].sum())
        sent, received = all_rows - int(counts[after, k]), all_rows - len(tables[name].numbers)
        traffic.count(name, sent * row, received * row)
    return out
