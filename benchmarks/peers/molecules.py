"""The gated graph network on molecules. A batch is one graph of many parts; the forms differ in how messages
get from atoms to their neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .forms import base
from .stored import Arrays, StoredInstances
from .torch_task import Nodes, TorchTask, affine, compiled, embedding

TYPES = ("single", "double", "triple", "aromatic")
# As in amphw.models.ggnn: Debye by which the output is scaled, unit of the error, unit of the table.
MEAN, DEVIATION, UNIT, TICK = 2.668, 1.477, 0.1, 1e-4


class Molecule(NamedTuple):
    """kind: of each atom. src, dst, type: of each edge, both directions of a bond. dipole: scaled."""

    kind: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    type: np.ndarray
    dipole: float


class Graphs(NamedTuple):
    """A batch. Edges are sorted by type, then by the atom that they leave.

    counts: edges of each type. A bundle is an atom and the type of some of its bonds. bundle_atom: its atom;
    bundle_counts: bundles of each type; edge_bundle: each edge's. part: molecule of each atom. adjacency:
    [molecules, atoms, atoms x types], padded to the largest; spot: where each atom is in a padded batch.
    """

    kind: Tensor
    src: Tensor
    dst: Tensor
    type: Tensor
    counts: list[int]
    bundle_atom: Tensor
    bundle_counts: list[int]
    edge_bundle: Tensor
    part: Tensor
    dipole: Tensor
    adjacency: Tensor | None
    spot: Tensor


class GatedGraphs(TorchTask):
    """Our nodes are embed, edge_single ... edge_aromatic, update, readout and output."""

    padded = ("adjacency", "dense-nh")
    """Forms that need the adjacency matrices."""

    def make(self, parameters: Mapping[str, Arrays]) -> nn.Module:
        self._edges = [affine(parameters[f"edge_{name}"]) for name in TYPES]
        self._embed, self._update = embedding(parameters["embed"]), _gru_cell(parameters["update"])
        self._readout, self._output = Readout(parameters["readout"]), affine(parameters["output"])
        ways = {
            "by-type": self._by_type,
            "bundles": self._bundles,
            "all-types": self._all_types,
            "adjacency": self._adjacency,
            "graph": self._bundles,
        }
        self._messages: Any = ways.get(base(self.form.name))
        self._forward = compiled(self._eager, self.form, dynamic=True)
        edges = {f"edge_{name}": layer for name, layer in zip(TYPES, self._edges, strict=True)}
        return Nodes({"embed": self._embed, **edges, "update": self._update, **self._end()})

    def _end(self) -> dict[str, nn.Module]:
        return {"readout": self._readout, "output": self._output}

    def load(self, stored: StoredInstances) -> None:
        names = ("kind", "degree", "source", "target", "mu")
        self._molecules = []
        for kind, degree, src, dst, (mu,) in zip(*map(stored.table, names), strict=True):
            # Edges are numbered by type; `degree` [types, atoms] has how many there are of each.
            type = np.repeat(np.arange(len(TYPES)), degree.sum(1))
            self._molecules.append(Molecule(kind, src, dst, type, (mu * TICK - MEAN) / DEVIATION))

    @property
    def units(self) -> int:
        return len(self._molecules)

    def collate(self, chosen: Sequence[int]) -> Graphs:
        padded = base(self.form.name) in self.padded
        return collate([self._molecules[i] for i in chosen], padded)

    def rows(self, batch: Graphs) -> int:
        return len(batch.dipole)

    def forward(self, batch: Graphs, metric: bool) -> tuple[Tensor, Tensor | None]:
        result: tuple[Tensor, Tensor | None] = self._forward(batch, metric)
        return result

    def _eager(self, batch: Graphs, metric: bool) -> tuple[Tensor, Tensor | None]:
        h = self.propagated(batch)
        return scored(self._output(self._readout(h, batch))[:, 0], batch, metric)

    def propagated(self, batch: Graphs) -> Tensor:
        """States of all atoms after the last step."""
        h = self._embed(batch.kind)
        messages: Callable[[Tensor], Tensor]
        if self.form.name == "dense-nh":
            messages = partial(self._dense, batch, self._matrix(batch))
        else:
            messages = partial(self._messages, batch)
        for _ in range(self.settings["steps"]):
            h = self._update(messages(h), h)
        return h

    # --- what arrives at every atom, in one step -----------------------------------------------------

    def _by_type(self, batch: Graphs, h: Tensor) -> Tensor:
        pieces = h.index_select(0, batch.src).split(batch.counts)
        sent = torch.cat([layer(piece) for layer, piece in zip(self._edges, pieces, strict=True)])
        return torch.zeros_like(h).index_add(0, batch.dst, sent)

    def _bundles(self, batch: Graphs, h: Tensor) -> Tensor:
        # An atom sends the same along all its bonds of one type: one product for them together.
        pieces = h.index_select(0, batch.bundle_atom).split(batch.bundle_counts)
        sent = torch.cat([layer(piece) for layer, piece in zip(self._edges, pieces, strict=True)])
        return torch.zeros_like(h).index_add(
            0, batch.dst, sent.index_select(0, batch.edge_bundle).to(h.dtype)
        )

    def _all_types(self, batch: Graphs, h: Tensor) -> Tensor:
        sent = self._through_all(h).view(-1, h.shape[1])
        chosen = sent.index_select(0, batch.src * len(TYPES) + batch.type)
        return torch.zeros_like(h).index_add(0, batch.dst, chosen)

    def _adjacency(self, batch: Graphs, h: Tensor) -> Tensor:
        assert batch.adjacency is not None
        molecules, atoms, _ = batch.adjacency.shape
        wide = h.shape[1]
        padded = h.new_zeros(molecules * atoms, len(TYPES) * wide).index_copy(
            0, batch.spot, self._through_all(h)
        )
        arrived = torch.bmm(batch.adjacency, padded.view(molecules, atoms * len(TYPES), wide))
        return arrived.view(-1, wide).index_select(0, batch.spot)

    def _matrix(self, batch: Graphs) -> Tensor:
        """As the papers' baseline: (atoms x hidden)^2 for each molecule, most of it zeros."""
        assert batch.adjacency is not None
        molecules, atoms, _ = batch.adjacency.shape
        weights = torch.stack([layer.weight for layer in self._edges])
        blocks = batch.adjacency.view(molecules, atoms, atoms, len(TYPES))
        side = atoms * weights.shape[1]
        return torch.einsum("mdst,toi->mdosi", blocks, weights).reshape(molecules, side, side)

    def _dense(self, batch: Graphs, matrix: Tensor, h: Tensor) -> Tensor:
        wide = h.shape[1]
        padded = h.new_zeros(matrix.shape[0] * matrix.shape[1] // wide, wide).index_copy(0, batch.spot, h)
        arrived = torch.bmm(matrix, padded.view(matrix.shape[0], -1, 1)).view(-1, wide)
        biases = torch.stack([layer.bias for layer in self._edges])
        return arrived.index_select(0, batch.spot) + _degrees(batch, len(h)) @ biases

    def _through_all(self, h: Tensor) -> Tensor:
        """Every atom through the layers of all types, [atoms, types x hidden]."""
        weight = torch.cat([layer.weight for layer in self._edges])
        return F.linear(h, weight, torch.cat([layer.bias for layer in self._edges]))

    def ours(self, gradients: Arrays) -> Arrays:
        names = {"weight_ih": "Wi", "bias_ih": "bi", "weight_hh": "Wh", "bias_hh": "bh"}
        names |= {"both.weight": "W", "both.bias": "b", "kind": "T"}
        out = {}
        for node in ("update", "readout"):
            for name in [name for name in gradients if name.startswith(f"{node}.")]:
                g = gradients.pop(name)
                given = names[name.removeprefix(f"{node}.")]
                out[f"{node}/{given}"] = g.T if g.ndim == 2 and given != "T" else g
        return super().ours(gradients) | out


class Readout(nn.Module):
    """The sum over a molecule's atoms of sigmoid(i(h, h0)) * tanh(j(h)).

    What h0 adds to i depends on the kind of atom alone: a table.
    """

    def __init__(self, values: Arrays) -> None:
        super().__init__()
        self.both = affine(values)
        self.kind = nn.Parameter(torch.from_numpy(values["T"].copy()))

    def forward(self, h: Tensor, batch: Graphs) -> Tensor:
        gate, value = self.both(h).chunk(2, 1)
        gate = gate + self.kind.index_select(0, batch.kind)
        read = torch.sigmoid(gate) * torch.tanh(value)
        return h.new_zeros(len(batch.dipole), h.shape[1]).index_add(0, batch.part, read)


def scored(y: Tensor, batch: Graphs, metric: bool) -> tuple[Tensor, Tensor | None]:
    """Squared error, scaled; and absolute error in units of 0.1 Debye."""
    off = y - batch.dipole
    return off.square().sum(), off.abs().sum() * (DEVIATION / UNIT) if metric else None


def _gru_cell(values: Arrays) -> nn.GRUCell:
    width = values["Wi"].shape[0]
    cell = nn.GRUCell(width, width)
    with torch.no_grad():
        for name, given in (("weight_ih", "Wi"), ("bias_ih", "bi"), ("weight_hh", "Wh"), ("bias_hh", "bh")):
            getattr(cell, name).copy_(torch.from_numpy(np.ascontiguousarray(values[given].T)))
    return cell


def _degrees(batch: Graphs, atoms: int) -> Tensor:
    """Edges into each atom, by type [atoms, types]."""
    ones = batch.dipole.new_zeros(atoms * len(TYPES)).index_add(
        0, batch.dst * len(TYPES) + batch.type, batch.dipole.new_ones(len(batch.dst))
    )
    return ones.view(atoms, len(TYPES))


def collate(molecules: Sequence[Molecule], padded: bool) -> Graphs:
    """One graph of all of them."""
    sizes = [len(m.kind) for m in molecules]
    first = np.cumsum([0, *sizes])[:-1].tolist()
    kind = np.concatenate([m.kind for m in molecules])
    src = np.concatenate([m.src + at for m, at in zip(molecules, first, strict=True)])
    dst = np.concatenate([m.dst + at for m, at in zip(molecules, first, strict=True)])
    type = np.concatenate([m.type for m in molecules])
    part = np.repeat(np.arange(len(molecules)), sizes)
    order = np.lexsort((src, type))
    src, dst, type = src[order], dst[order], type[order]
    bundles, edge_bundle = np.unique(type * len(kind) + src, return_inverse=True)

    widest = max(sizes)
    within = np.arange(len(kind)) - np.repeat(first, sizes)
    adjacency = None
    if padded:
        adjacency = np.zeros((len(molecules), widest, widest * len(TYPES)), np.float32)
        np.add.at(adjacency, (part[dst], within[dst], within[src] * len(TYPES) + type), 1)
    return Graphs(
        kind=torch.from_numpy(kind),
        src=torch.from_numpy(src),
        dst=torch.from_numpy(dst),
        type=torch.from_numpy(type),
        counts=np.bincount(type, minlength=len(TYPES)).tolist(),
        bundle_atom=torch.from_numpy(bundles % len(kind)),
        bundle_counts=np.bincount(bundles // len(kind), minlength=len(TYPES)).tolist(),
        edge_bundle=torch.from_numpy(edge_bundle),
        part=torch.from_numpy(part),
        dipole=torch.tensor([m.dipole for m in molecules], dtype=torch.float32),
        adjacency=None if adjacency is None else torch.from_numpy(adjacency),
        spot=torch.from_numpy(part * widest + within),
    )
