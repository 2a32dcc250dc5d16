"""The language models. A batch is padded sentences, which may bring the candidates of their sampled softmax.

Tables that are read by rows alone have sparse gradients, so that an update costs what the batch has touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .forms import base
from .stored import Arrays, StoredInstances
from .taggers import fill, padded, sizes, to_ours
from .torch_task import Nodes, TorchTask, affine, compiled, embedding

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

    tables: tuple[str, ...] = ("words_word", "words_next", "candidates_words", "candidates_drawn")

    def make(self, parameters: Mapping[str, Arrays]) -> nn.Module:
        self._embed = embedding(parameters["embed"], sparse=not self.form.name.startswith("dense"))
        self._lstm = nn.LSTM(*sizes(parameters["cell"]))
        fill(self._lstm, parameters["cell"], "_l0")
        self._output = self.output(parameters["output"])
        self._packed = self.form.name.startswith("packed")
        self._forward = compiled(self._eager, self.form, dynamic=True)
        return Nodes({"embed": self._embed, "cell": self._lstm, "output": self._output})

    def output(self, values: Arrays) -> Any:
        return Output(values)

    def load(self, stored: StoredInstances) -> None:
        self._sentences = list(zip(*map(stored.table, self.tables), strict=True))

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
        h = self.read(batch)
        if batch.candidates is None:
            return self._output.full(h[batch.valid], batch.following[batch.valid])
        loss = self._output.sampled(h, batch.following, batch.candidates)
        return (loss * batch.valid).sum()

    def read(self, batch: Batch) -> Tensor:
        """The state h behind each word, [longest, sentences, width]."""
        x: Tensor = self._embed(batch.words)
        if not self._packed:
            return self._lstm(x)[0]  # type: ignore[no-any-return]
        packed = pack_padded_sequence(x, batch.lengths, enforce_sorted=False)
        h: Tensor = pad_packed_sequence(self._lstm(packed)[0], total_length=len(x))[0]
        return h

    def ours(self, gradients: Arrays) -> Arrays:
        x, h, b = (gradients.pop(f"cell.{n}_l0") for n in ("weight_ih", "weight_hh", "bias_ih"))
        cell = {"cell/W": to_ours(np.concatenate([x, h], 1)).T, "cell/b": to_ours(b)}
        output = {
            f"output/{n}": gradients.pop(f"output.{n}") for n in ("W", "b") if f"output.{n}" in gradients
        }
        return super().ours(gradients) | cell | output


class FullLanguageModels(LanguageModels):
    """The same with a dense output: every word's loss is over the whole vocabulary."""

    tables = ("words_word", "words_next")

    def output(self, values: Arrays) -> nn.Linear:
        return affine(values)

    def collate(self, chosen: Sequence[int]) -> Batch:
        word, following = zip(*(self._sentences[i] for i in chosen), strict=True)
        words = padded(word)
        valid = torch.arange(len(words.items))[:, None] < words.lengths
        return Batch(words.items, padded(following).items, valid, words.lengths, None)

    def _eager(self, batch: Batch) -> Tensor:
        h, true = self.read(batch)[batch.valid], batch.following[batch.valid]
        if not base(self.form.name).startswith("chunked"):
            return F.cross_entropy(self._output(h), true, reduction="sum")
        loss: Tensor = Chunked.apply(h, self._output.weight, self._output.bias, true)  # type: ignore[no-untyped-call]
        return loss


class Chunked(torch.autograd.Function):
    """The sum of cross-entropies of h W' + b, without keeping the logits: of a few words at a time, whose
    gradients are taken before they leave the cache (as Liger's `fused_linear_cross_entropy`)."""

    WORDS = 64

    @staticmethod
    def forward(ctx: Any, h: Tensor, w: Tensor, b: Tensor, true: Tensor) -> Tensor:
        total, train = h.new_zeros(()), any(ctx.needs_input_grad)
        if train:
            dh, dw, db = torch.empty_like(h), torch.zeros_like(w), torch.zeros_like(b)
        for at in range(0, len(h), Chunked.WORDS):
            part, labels = h[at : at + Chunked.WORDS], true[at : at + Chunked.WORDS, None]
            logits = torch.addmm(b, part, w.t())
            most = logits.logsumexp(1, keepdim=True)
            total += (most - logits.gather(1, labels)).sum()
            if train:
                p = logits.sub_(most).exp_()
                p.scatter_add_(1, labels, p.new_full(labels.shape, -1.0))
                torch.mm(p, w, out=dh[at : at + Chunked.WORDS])
                dw.addmm_(p.t(), part)
                db += p.sum(0)
        if train:
            ctx.save_for_backward(dh, dw, db)
        return total

    @staticmethod
    def backward(ctx: Any, share: Tensor) -> Any:
        return *(g.mul_(share) for g in ctx.saved_tensors), None


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
