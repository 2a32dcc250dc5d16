"""The Transformer encoder, a class at each position. A batch is sequences of letters of any length.

Forms are PyTorch's own layers over padded sequences, or the same layers written out over the positions that
there are, which are padded for the attention alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .forms import base
from .stored import Arrays, StoredInstances
from .task import of_nearly_one_length
from .torch_task import Nodes, TorchTask, affine, classified, compiled, embedding

THEIRS = {"self_attn.out_proj": "mix", "linear1": "inner", "linear2": "outer"}
NORMS = {"norm1": "seen", "norm2": "thought"}
"""Parts of PyTorch's layer, and our nodes."""


class Batch(NamedTuple):
    """letters, places, other: of all positions, sequence by sequence; other is what is to be said. padded:
    letters [sequences, longest], 0 where there is none. absent [sequences, longest]: where there is none.
    valid: numbers of the positions among the padded ones. lengths: of sequences."""

    letters: Tensor
    places: Tensor
    other: Tensor
    padded: Tensor
    absent: Tensor
    valid: Tensor
    lengths: Tensor


class Encoders(TorchTask):
    """Our nodes are embed, place and head, and those of layers: parts0, mix0, seen0, inner0, outer0,
    thought0, parts1, .."""

    def make(self, parameters: Mapping[str, Arrays]) -> nn.Module:
        self._embed, self._place = embedding(parameters["embed"]), embedding(parameters["place"])
        self._head = affine(parameters["head"])
        count = sum(name.startswith("parts") for name in parameters)
        self._layers = [self._layer(parameters, number) for number in range(count)]
        self._encoder = nn.TransformerEncoder(self._layers[0], count)  # whose layers are copies
        self._encoder.layers = nn.ModuleList(self._layers)
        padded = base(self.form.name) in ("layers", "bucketed")
        self._forward = compiled(self._padded if padded else self._flat, self.form, dynamic=True)
        ends = {"embed": self._embed, "place": self._place, "head": self._head}
        # A layer is under the name of its first node.
        return Nodes(ends | {f"parts{number}": layer for number, layer in enumerate(self._layers)})

    def _layer(self, parameters: Mapping[str, Arrays], number: int) -> nn.TransformerEncoderLayer:
        def of(name: str) -> Arrays:
            return parameters[f"{name}{number}"]

        width, inner = of("inner")["W"].shape
        layer = nn.TransformerEncoderLayer(
            width, int(self.settings["heads"]), inner, dropout=0.0, batch_first=True
        )
        parts = of("parts")
        given = {"self_attn.in_proj_weight": parts["W"].T, "self_attn.in_proj_bias": parts["b"]}
        for name, node in THEIRS.items():
            given |= {f"{name}.weight": of(node)["W"].T, f"{name}.bias": of(node)["b"]}
        for name, node in NORMS.items():
            given |= {f"{name}.weight": of(node)["scale"], f"{name}.bias": of(node)["shift"]}
        layer.load_state_dict({n: torch.from_numpy(np.ascontiguousarray(v)) for n, v in given.items()})
        return layer

    def load(self, stored: StoredInstances) -> None:
        self._texts = list(zip(*map(stored.table, ("text_letter", "text_other")), strict=True))

    @property
    def units(self) -> int:
        return len(self._texts)

    def groups(self, order: np.ndarray, size: int) -> Iterator[np.ndarray]:
        """Where the form says so, batches of nearly equal lengths, in a mixed order."""
        if base(self.form.name) not in ("bucketed", "flat-bucketed"):
            yield from super().groups(order, size)
            return
        lengths = np.array([len(letters) for letters, _ in self._texts])
        yield from of_nearly_one_length(lengths, order, size)

    def collate(self, chosen: Sequence[int]) -> Batch:
        letters, others = zip(*(self._texts[i] for i in chosen), strict=True)
        lengths = np.array([len(each) for each in letters])
        inside = np.arange(lengths.max()) < lengths[:, None]
        padded = np.zeros(inside.shape, np.int64)
        padded[inside] = np.concatenate(letters)
        arrays = (
            np.concatenate(letters),
            np.nonzero(inside)[1],
            np.concatenate(others),
            padded,
            ~inside,
            np.flatnonzero(inside),
            lengths,
        )
        return Batch(*map(torch.from_numpy, arrays))

    def rows(self, batch: Batch) -> int:
        return len(batch.other)

    def forward(self, batch: Batch, metric: bool) -> tuple[Tensor, Tensor | None]:
        # In inference PyTorch's own layers take another way, with nested tensors in place of padded ones.
        self._encoder.train(torch.is_grad_enabled())
        result: tuple[Tensor, Tensor | None] = self._forward(batch, metric)
        return result

    def _padded(self, batch: Batch, metric: bool) -> tuple[Tensor, Tensor | None]:
        h = self._embed(batch.padded) + self._place.weight[: batch.padded.shape[1]]
        h = self._encoder(h, src_key_padding_mask=batch.absent)
        h = h.reshape(-1, h.shape[2]).index_select(0, batch.valid)
        return classified(self._head(h), batch.other, metric)

    def _flat(self, batch: Batch, metric: bool) -> tuple[Tensor, Tensor | None]:
        h = self._embed(batch.letters) + self._place(batch.places)
        sequences, longest = batch.padded.shape
        there = ~batch.absent[:, None, None, :]
        for layer in self._layers:
            heads = layer.self_attn.num_heads
            parts = F.linear(h, layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias)
            rows = parts.new_zeros(sequences * longest, parts.shape[1]).index_copy(0, batch.valid, parts)
            q, k, v = rows.view(sequences, longest, 3, heads, -1).permute(2, 0, 3, 1, 4)
            looked = F.scaled_dot_product_attention(q, k, v, attn_mask=there)
            looked = looked.transpose(1, 2).reshape(sequences * longest, -1)
            h = _behind(layer, h, looked.index_select(0, batch.valid))
        return classified(self._head(h), batch.other, metric)

    def ours(self, gradients: Arrays) -> Arrays:
        out: Arrays = {}
        for number in range(len(self._layers)):
            own = {n: gradients.pop(f"parts{number}.{n}") for n, _ in self._layers[number].named_parameters()}
            out[f"parts{number}/W"] = own["self_attn.in_proj_weight"].T
            out[f"parts{number}/b"] = own["self_attn.in_proj_bias"]
            for name, node in THEIRS.items():
                out[f"{node}{number}/W"], out[f"{node}{number}/b"] = (
                    own[f"{name}.weight"].T,
                    own[f"{name}.bias"],
                )
            for name, node in NORMS.items():
                out[f"{node}{number}/scale"], out[f"{node}{number}/shift"] = (
                    own[f"{name}.weight"],
                    own[f"{name}.bias"],
                )
        return super().ours(gradients) | out


def _behind(layer: nn.TransformerEncoderLayer, h: Tensor, looked: Tensor) -> Tensor:
    """What follows a layer's attention, whose result is `looked`."""
    h = layer.norm1(h + layer.self_attn.out_proj(looked))
    out: Tensor = layer.norm2(h + layer.linear2(torch.relu(layer.linear1(h))))
    return out
