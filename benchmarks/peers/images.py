"""The perceptron on images (workload mlp)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .stored import Arrays, StoredInstances
from .torch_task import Nodes, TorchTask, affine, classified, compiled

Batch = tuple[Tensor, Tensor]


class Perceptron(TorchTask):
    """Linear layers with rectifiers between them; our nodes are linear1, linear2, ..."""

    def make(self, parameters: Mapping[str, Arrays]) -> nn.Module:
        layers = {name: affine(values) for name, values in parameters.items()}
        self._layers = [layers[name] for name in sorted(layers)]
        self._forward = compiled(self._eager, self.form, dynamic=False)
        return Nodes(layers)

    def load(self, stored: StoredInstances) -> None:
        self._images = torch.from_numpy(np.concatenate(stored.data("image")))
        self._labels = torch.from_numpy(np.concatenate(stored.table("label")))

    @property
    def units(self) -> int:
        return len(self._labels)

    def collate(self, chosen: Sequence[int]) -> Batch:
        return self._images[chosen], self._labels[chosen]

    def rows(self, batch: Batch) -> int:
        return len(batch[1])

    def shape(self, batch: Batch) -> Any:
        return len(batch[1])

    def forward(self, batch: Batch, metric: bool) -> tuple[Tensor, Tensor | None]:
        result: tuple[Tensor, Tensor | None] = self._forward(*batch, metric)
        return result

    def _eager(self, x: Tensor, labels: Tensor, metric: bool) -> tuple[Tensor, Tensor | None]:
        *inner, last = self._layers
        for layer in inner:
            x = torch.relu(layer(x))
        return classified(last(x), labels, metric)
