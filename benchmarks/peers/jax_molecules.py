"""The gated graph network on molecules in JAX: a batch is one graph of many parts, padded to few shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .jax_task import JaxTask, Parameters, padded, upto
from .stored import StoredInstances

TYPES = ("single", "double", "triple", "aromatic")
# As in amphw.models.ggnn: Debye by which the output is scaled, unit of the error, unit of the table.
MEAN, DEVIATION, UNIT, TICK = 2.668, 1.477, 0.1, 1e-4


class GatedGraphs(JaxTask):
    """Our nodes are embed, edge_single ... edge_aromatic, update, readout and output.

    What an atom sends along its bonds of one type is computed once, a bundle; edges gather it, and
    `segment_sum` adds up what arrives at an atom.
    """

    def load(self, stored: StoredInstances) -> None:
        names = ("kind", "degree", "source", "target", "mu")
        self._molecules = list(zip(*map(stored.table, names), strict=True))

    @property
    def units(self) -> int:
        return len(self._molecules)

    def rows(self, batch: Mapping[str, Any]) -> int:
        return len(batch["dipole"])

    def collate(self, chosen: Sequence[int]) -> dict[str, Any]:
        kinds, degrees, sources, targets, mu = zip(*(self._molecules[i] for i in chosen), strict=True)
        sizes = [len(kind) for kind in kinds]
        first = np.cumsum([0, *sizes])[:-1]
        src = np.concatenate([s + at for s, at in zip(sources, first, strict=True)])
        dst = np.concatenate([d + at for d, at in zip(targets, first, strict=True)])
        type = np.concatenate([np.repeat(np.arange(len(TYPES)), d.sum(1)) for d in degrees])
        atoms, edges = upto(sum(sizes) + 1, 128), upto(len(src), 256)
        batch: dict[str, Any] = {
            "kind": padded(np.concatenate(kinds), atoms),
            # What is padded belongs to no molecule, and leads to the last atom, which is padded as well.
            "part": padded(np.repeat(np.arange(len(sizes)), sizes), atoms, len(sizes)),
            "dipole": ((np.concatenate(mu) * TICK - MEAN) / DEVIATION).astype(np.float32),
        }
        bundle, at = np.zeros(len(src), np.int64), 0
        for number in range(len(TYPES)):
            own = np.flatnonzero(type == number)
            found, among = np.unique(src[own], return_inverse=True)
            count = upto(max(1, len(found)), 64)
            batch[f"atoms{number}"] = padded(found, count, atoms - 1)
            bundle[own] = at + among
            at += count
        order = np.argsort(dst, kind="stable")
        batch["bundle"] = padded(bundle[order], edges)
        batch["dst"] = padded(dst[order], edges, atoms - 1)
        return batch

    def loss(self, p: Parameters, batch: Mapping[str, Array]) -> tuple[Array, Array]:
        h = p["embed"]["E"][batch["kind"]]
        atoms = len(h)
        u = p["update"]
        for _ in range(self.settings["steps"]):
            sent = [
                h[batch[f"atoms{number}"]] @ p[f"edge_{name}"]["W"] + p[f"edge_{name}"]["b"]
                for number, name in enumerate(TYPES)
            ]
            along = jnp.concatenate(sent)[batch["bundle"]]
            x = jax.ops.segment_sum(along, batch["dst"], atoms, indices_are_sorted=True)
            r_x, z_x, n_x = jnp.split(x @ u["Wi"] + u["bi"], 3, 1)
            r_h, z_h, n_h = jnp.split(h @ u["Wh"] + u["bh"], 3, 1)
            z = jax.nn.sigmoid(z_x + z_h)
            h = (1 - z) * jnp.tanh(n_x + jax.nn.sigmoid(r_x + r_h) * n_h) + z * h
        gate, value = jnp.split(h @ p["readout"]["W"] + p["readout"]["b"], 2, 1)
        read = jax.nn.sigmoid(gate + p["readout"]["T"][batch["kind"]]) * jnp.tanh(value)
        molecules = len(batch["dipole"])
        whole = jax.ops.segment_sum(read, batch["part"], molecules + 1, indices_are_sorted=True)[:molecules]
        off = (whole @ p["output"]["W"] + p["output"]["b"])[:, 0] - batch["dipole"]
        return (off * off).sum(), jnp.abs(off).sum() * (DEVIATION / UNIT)
