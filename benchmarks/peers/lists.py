"""The recurrent network on list reduction. Batches are of one length, so that nothing is padded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .forms import base
from .stored import Arrays, StoredInstances
from .task import of_one_length
from .torch_task import Nodes, TorchTask, affine, classified, compiled, embedding

Batch = tuple[Tensor, Tensor]
"""Tokens [length, batch] and labels [batch]."""


class Recurrent(TorchTask):
    """h' = relu([e, h] W + b) from zero over the tokens; our nodes are cell, which looks e up, and head."""

    def make(self, parameters: Mapping[str, Arrays]) -> nn.Module:
        self._head = affine(parameters["head"])
        self._cell = _Cell(parameters["cell"])
        if base(self.form.name) == "rnn":
            self._forward, self._rnn = self._library, self._cell.as_library()
            cell = Nodes({"embed": self._cell.embed, "rnn": self._rnn})
        else:
            self._forward = compiled(self._folded, self.form, dynamic=False)
            cell = self._cell
        return Nodes({"cell": cell, "head": self._head})

    def load(self, stored: StoredInstances) -> None:
        tokens = [column for table in stored.table("tokens") for column in table.T]
        self._lengths = np.array([len(each) for each in tokens])
        self._tokens = np.zeros((len(tokens), self._lengths.max()), np.int64)
        for row, each in zip(self._tokens, tokens, strict=True):
            row[: len(each)] = each
        self._labels = np.concatenate(stored.table("label"))

    @property
    def units(self) -> int:
        return len(self._labels)

    def groups(self, order: np.ndarray, size: int) -> Iterator[np.ndarray]:
        """See `of_one_length`."""
        return of_one_length(self._lengths, order, size)

    def collate(self, chosen: Sequence[int]) -> Batch:
        rows = np.asarray(chosen)
        tokens = self._tokens[rows, : self._lengths[rows[0]]]
        return torch.from_numpy(np.ascontiguousarray(tokens.T)), torch.from_numpy(self._labels[rows])

    def rows(self, batch: Batch) -> int:
        return len(batch[1])

    def shape(self, batch: Batch) -> Any:
        return tuple(batch[0].shape)

    def forward(self, batch: Batch, metric: bool) -> tuple[Tensor, Tensor | None]:
        result: tuple[Tensor, Tensor | None] = self._forward(*batch, metric)
        return result

    def ours(self, gradients: Arrays) -> Arrays:
        if base(self.form.name) == "rnn":
            names = ("cell.rnn.weight_ih_l0", "cell.rnn.weight_hh_l0", "cell.rnn.bias_ih_l0")
            gradients.pop("cell.rnn.bias_hh_l0")  # the same as the other bias's
        else:
            names = ("cell.input", "cell.state", "cell.bias")
        w_input, w_state, bias = (gradients.pop(name) for name in names)
        w = np.concatenate([w_input, w_state], 1).T
        cell = {"cell/E": gradients.pop("cell.embed.weight"), "cell/W": w, "cell/b": bias}
        return super().ours(gradients) | cell

    def _folded(self, tokens: Tensor, labels: Tensor, metric: bool) -> tuple[Tensor, Tensor | None]:
        # What a token adds to the state depends on the token alone: one small product instead of one a step.
        table = F.linear(self._cell.embed.weight, self._cell.input, self._cell.bias)
        added = table[tokens]
        h = torch.relu(added[0])
        recurrent = self._cell.state.t()
        for t in range(1, tokens.shape[0]):
            h = torch.relu(torch.addmm(added[t], h, recurrent))
        return classified(self._head(h), labels, metric)

    def _library(self, tokens: Tensor, labels: Tensor, metric: bool) -> tuple[Tensor, Tensor | None]:
        _, h = self._rnn(self._cell.embed(tokens))
        return classified(self._head(h[0]), labels, metric)


class _Cell(nn.Module):
    """The embedding, and the matrix, cut into what multiplies the input and what multiplies the state."""

    def __init__(self, values: Arrays) -> None:
        super().__init__()
        self.embed = embedding(values)
        whole, width = affine(values), self.embed.weight.shape[1]
        self.input = nn.Parameter(whole.weight.detach()[:, :width].clone())
        self.state = nn.Parameter(whole.weight.detach()[:, width:].clone())
        self.bias = nn.Parameter(whole.bias.detach().clone())

    def as_library(self) -> nn.RNN:
        rnn = nn.RNN(self.input.shape[1], self.state.shape[0], nonlinearity="relu")
        with torch.no_grad():
            rnn.weight_ih_l0.copy_(self.input)
            rnn.weight_hh_l0.copy_(self.state)
            rnn.bias_ih_l0.copy_(self.bias)
            rnn.bias_hh_l0.zero_()
        return rnn
