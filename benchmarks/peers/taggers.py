"""The tagger. Words without an embedding of their own are spelled; a batch is sentences of any length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from .forms import base
from .sentences import WAYS, sentences
from .stored import Arrays, StoredInstances
from .torch_task import Nodes, TorchTask, affine, classified, compiled, embedding


class Padded(NamedTuple):
    """Sequences [longest, sequences], 0 where there is none. turned: for each position of a sequence,
    that from the other end; where there is none, itself. valid: numbers of the items in the
    padded ones, sequence by sequence. last: of the last item of each."""

    items: Tensor
    lengths: Tensor
    turned: Tensor
    valid: Tensor
    last: Tensor


class Batch(NamedTuple):
    """known, spelled: numbers of those words among all. word: rows of the known ones. words: their positions,
    as numbers from 1 among all words."""

    known: Tensor
    spelled: Tensor
    word: Tensor
    letters: Padded | None
    words: Padded
    tag: Tensor


class Taggers(TorchTask):
    """Our nodes are embed, letter, spell_ahead, spell_back, read_ahead, read_back, hidden and head."""

    def make(self, parameters: Mapping[str, Arrays]) -> nn.Module:
        self._embed, self._letter = embedding(parameters["embed"]), embedding(parameters["letter"])
        self._hidden, self._head = affine(parameters["hidden"]), affine(parameters["head"])
        name = base(self.form.name)
        make = _packed if name in ("packed", "sentence") else _single
        self._lstms = {
            kind: make(*(parameters[f"{kind}_{way}"] for way in WAYS)) for kind in ("spell", "read")
        }
        self._forward = compiled(self._eager, self.form, dynamic=True)
        ends = {"embed": self._embed, "letter": self._letter, "hidden": self._hidden, "head": self._head}
        # One layer for both directions is under the name of the first.
        lstms = {
            f"{k}_{way}": lstm for k, v in self._lstms.items() for way, lstm in zip(WAYS, v, strict=False)
        }
        return Nodes({**ends, **lstms})

    def load(self, stored: StoredInstances) -> None:
        self._sentences = sentences(stored)

    @property
    def units(self) -> int:
        return len(self._sentences)

    def collate(self, chosen: Sequence[int]) -> Batch:
        kept = [self._sentences[i] for i in chosen]
        word = np.concatenate([s.word for s in kept])
        spelled = [letters for s in kept for letters in s.letters]
        numbers = np.split(np.arange(1, len(word) + 1), np.cumsum([len(s.word) for s in kept])[:-1])
        return Batch(
            torch.from_numpy(np.flatnonzero(word)),
            torch.from_numpy(np.flatnonzero(word == 0)),
            torch.from_numpy(word[word > 0]),
            padded(spelled) if spelled else None,
            padded(numbers),
            torch.from_numpy(np.concatenate([s.tag for s in kept])),
        )

    def rows(self, batch: Batch) -> int:
        return len(batch.tag)

    def forward(self, batch: Batch, metric: bool) -> tuple[Tensor, Tensor | None]:
        result: tuple[Tensor, Tensor | None] = self._forward(batch, metric)
        return result

    def _eager(self, batch: Batch, metric: bool) -> tuple[Tensor, Tensor | None]:
        words = self._embed.weight.new_zeros(len(batch.tag) + 1, self._embed.weight.shape[1])
        words = words.index_copy(0, batch.known + 1, self._embed(batch.word))
        if batch.letters is not None:
            ends = self._run("spell", self._letter(batch.letters.items), batch.letters)
            # Each direction has read all letters where its own last position is.
            words = words.index_copy(0, batch.spelled + 1, torch.cat(_ends(ends, batch.letters), 1))
        both = torch.cat(self._run("read", words[batch.words.items], batch.words), 2)
        both = both.transpose(0, 1).reshape(-1, both.shape[2]).index_select(0, batch.words.valid)
        return classified(self._head(torch.tanh(self._hidden(both))), batch.tag, metric)

    def _run(self, kind: str, x: Tensor, by: Padded) -> tuple[Tensor, Tensor]:
        """States of both directions at every position, each [longest, sequences, width]."""
        lstms = self._lstms[kind]
        if len(lstms) == 1:
            packed: PackedSequence = lstms[0](
                pack_padded_sequence(x, by.lengths.cpu(), enforce_sorted=False)
            )[0]
            ahead, back = pad_packed_sequence(packed, total_length=len(x))[0].chunk(2, 2)
            return ahead, back
        index = by.turned[:, :, None]
        ahead = lstms[0](x)[0]
        back = lstms[1](x.gather(0, index.expand(-1, -1, x.shape[2])))[0]
        return ahead, back.gather(0, index.expand(-1, -1, back.shape[2]))

    def ours(self, gradients: Arrays) -> Arrays:
        out: Arrays = {}
        for kind, lstms in self._lstms.items():
            for k, way in enumerate(WAYS):
                at = f"{kind}_ahead.{{}}_l0_reverse" if k and len(lstms) == 1 else f"{kind}_{way}.{{}}_l0"
                x, h, b = (gradients.pop(at.format(n)) for n in ("weight_ih", "weight_hh", "bias_ih"))
                out[f"{kind}_{way}/W"] = to_ours(np.concatenate([x, h], 1)).T
                out[f"{kind}_{way}/b"] = to_ours(b)
        return super().ours(gradients) | out


def _ends(states: tuple[Tensor, Tensor], by: Padded) -> tuple[Tensor, Tensor]:
    """What each direction ends with: behind the last item, and before the first one."""
    ahead, back = states
    return ahead.transpose(0, 1).reshape(-1, ahead.shape[2]).index_select(0, by.last), back[0]


def padded(sequences: Sequence[np.ndarray]) -> Padded:
    """The longest first dimension, as PyTorch's recurrent layers like it."""
    lengths = np.array([len(s) for s in sequences])
    longest = int(lengths.max())
    items = np.zeros((longest, len(sequences)), np.int64)
    position = np.arange(longest)[:, None]
    inside = position < lengths
    items.T[inside.T] = np.concatenate(sequences)
    return Padded(
        torch.from_numpy(items),
        torch.from_numpy(lengths),
        torch.from_numpy(np.where(inside, lengths - 1 - position, position)),
        torch.from_numpy(np.flatnonzero(inside.T)),
        torch.from_numpy(np.arange(len(lengths)) * longest + lengths - 1),
    )


def _packed(ahead: Arrays, back: Arrays) -> list[nn.LSTM]:
    lstm = nn.LSTM(*sizes(ahead), bidirectional=True)
    fill(lstm, ahead, "_l0")
    fill(lstm, back, "_l0_reverse")
    return [lstm]


def _single(*ways: Arrays) -> list[nn.LSTM]:
    made = [nn.LSTM(*sizes(values)) for values in ways]
    for lstm, values in zip(made, ways, strict=True):
        fill(lstm, values, "_l0")
    return made


def sizes(values: Arrays) -> tuple[int, int]:
    hidden = values["W"].shape[1] // 4
    return values["W"].shape[0] - hidden, hidden


def fill(lstm: nn.LSTM, values: Arrays, suffix: str) -> None:
    """Our gates are i, f, o and the candidate; PyTorch's are i, f, the candidate and o."""
    x, _ = sizes(values)
    w, b = _to_theirs(values["W"].T), _to_theirs(values["b"])
    given: dict[str, Any] = {"weight_ih": w[:, :x], "weight_hh": w[:, x:], "bias_ih": b, "bias_hh": 0 * b}
    with torch.no_grad():
        for name, value in given.items():
            getattr(lstm, name + suffix).copy_(torch.from_numpy(np.ascontiguousarray(value)))
    # One of the two biases is enough; the other would be trained as well.
    getattr(lstm, f"bias_hh{suffix}").requires_grad_(False)


def _to_theirs(gates: np.ndarray) -> np.ndarray:
    i, f, o, u = np.split(gates, 4)
    return np.concatenate([i, f, u, o])


def to_ours(gates: np.ndarray) -> np.ndarray:
    i, f, u, o = np.split(gates, 4)
    return np.concatenate([i, f, o, u])
