"""AllReduce: each rank has all parameters, and adds up the gradients of all ranks (Parallax, section 2.2)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from amphw.ir.update import NodeGradient
from amphw.replicas.collectives import all_reduce
from amphw.replicas.transport import Transport


class AllReduce:
    """See `Strategy`. All gradients go in one ring for each type of number, and so do all rows."""

    name = "allreduce"

    def exchange(self, gradients: Mapping[str, NodeGradient], transport: Transport) -> None:
        nodes = sorted(gradients)
        rows = np.array([gradients[n].rows for n in nodes], np.int64)
        all_reduce(transport, rows)
        for node, count in zip(nodes, rows.tolist(), strict=True):
            gradients[node].rows = count
        arrays = [gradients[n].arrays[name] for n in nodes for name in sorted(gradients[n].arrays)]
        for kind in sorted({str(a.dtype) for a in arrays}):
            alike = [a for a in arrays if str(a.dtype) == kind]
            everything = np.concatenate([a.reshape(-1) for a in alike])
            all_reduce(transport, everything)
            at = 0
            for a in alike:
                a[...] = everything[at : at + a.size].reshape(a.shape)
                at += a.size
