"""The language model. A batch is padded sentences, each with the candidates of its sampled softmax.

Tables are read by rows alone and have sparse gradients, so that an update costs what the batch has touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .stored import Arrays, StoredInstances
from .taggers import fill, padded, sizes, to_ours
from .torch_task import Nodes, TorchTask, compiled, embedding

NEVER = -1e4
"""Added to the score of a candidate that is the true word."""


class Batch(NamedTuple):
    """words, following: [longest, sentences], 0 where there is none. valid: where there is one. lengths: of
    sentences. candidates: [sentences, samples]; none where they are the vocabulary."""

    words: Tensor
    following: Tensor
    valid: Tensor
    lengths: Tensor
    candidates: Tensor | None


class LanguageModels(TorchTask):
    """Our nodes are embed, cell and output; the cell is an LSTM."""

    def make(self, parameters: Mapping[str, Arrays]) -> nn.Module:
        self._embed = embedding(parameters["embed"], sparse=True)
        self._lstm = nn.LSTM(*sizes(parameters["cell"]))
        fill(self._lstm, parameters["cell"], "_l0")
        self._output = Output(parameters["output"])
        self._packed = self.form.name.startswith("packed")
        self._forward = compiled(self._eager, self.form, dynamic=True)
        return Nodes({"embed": self._embed, "cell": self._lstm, "output": self._output})

    def load(self, stored: StoredInstances) -> None:
        names = ("words_word", "words_next", "candidates_words", "candidates_drawn")
        self._sentences = list(zip(*map(stored.table, names), strict=True))

    @property
    def units(self) -> int:
        return len(self._sentences)

    def collate(self, chosen: Sequence[int]) -> Batch:
        word, following, candidates, drawn = zip(*(self._sentences[i] for i in chosen), strict=True)
        words = padded(word)
        valid = torch.arange(len(words.items))[:, None] < words.lengths
        sampled = torch.from_numpy(np.stack(candidates)) if drawn[0].item() else None
        return Batch(words.items, padded(following).items, valid, words.lengths, sampled)

    def rows(self, batch: Batch) -> int:
        return int(batch.lengths.sum())

    def forward(self, batch: Batch, metric: bool) -> tuple[Tensor, Tensor | None]:
        loss: Tensor = self._forward(batch)
        return loss, loss if metric else None

    def _eager(self, batch: Batch) -> Tensor:
        x: Tensor = self._embed(batch.words)
        if self._packed:
            packed = pack_padded_sequence(x, batch.lengths, enforce_sorted=False)
            h = pad_packed_sequence(self._lstm(packed)[0], total_length=len(x))[0]
        else:
            h = self._lstm(x)[0]
        if batch.candidates is None:
            return self._output.full(h[batch.valid], batch.following[batch.valid])
        loss = self._output.sampled(h, batch.following, batch.candidates)
        return (loss * batch.valid).sum()

    def ours(self, gradients: Arrays) -> Arrays:
        x, h, b = (gradients.pop(f"cell.{n}_l0") for n in ("weight_ih", "weight_hh", "bias_ih"))
        cell = {"cell/W": to_ours(np.concatenate([x, h], 1)).T, "cell/b": to_ours(b)}
        output = {f"output/{n}": gradients.pop(f"output.{n}") for n in ("W", "b")}
        return super().ours(gradients) | cell | output


class Output(nn.Module):
    """The output's tables W [vocabulary, width] and b [vocabulary, 1], of which rows are read."""

    sparse = True

    def __init__(self, values: Arrays) -> None:
        super().__init__()
        self.W, self.b = (nn.Parameter(torch.from_numpy(values[n].copy())) for n in ("W", "b"))

    def sampled(self, h: Tensor, true: Tensor, candidates: Tensor) -> Tensor:
        """The loss [longest, sentences] of h [longest, sentences, width] by sampled softmax."""
        # One look-up for all rows: one sparse gradient to be summed up.
        longest, sentences = true.shape
        words = torch.cat([true.t(), candidates], 1)
        w = F.embedding(words, self.W, sparse=True)
        # A word is expected in proportion to 1 / (word + 1); what all have in common cancels out.
        offset = F.embedding(words, self.b, sparse=True)[:, :, 0] + (words + 1.0).log()
        h = h.transpose(0, 1)
        right = (h * w[:, :longest]).sum(2) + offset[:, :longest]
        others = torch.baddbmm(offset[:, None, longest:], h, w[:, longest:].transpose(1, 2))
        hit = candidates[:, None, :] == true.t()[:, :, None]
        scores = torch.cat([right[:, :, None], others + hit * NEVER], 2)
        return (scores.logsumexp(2) - right).t()

    def full(self, h: Tensor, true: Tensor) -> Tensor:
        """The sum of the losses of h [words, width], over the whole vocabulary."""
        total = h.new_zeros(())
        for part, label in zip(h.split(256), true.split(256), strict=True):
            total = total + F.cross_entropy(part @ self.W.t() + self.b[:, 0], label, reduction="sum")
        return total
