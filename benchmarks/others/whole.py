"""A whole model that others wrote, and the layers that `from_torch` makes of its pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from amphw import frontend as fe

Data = list[dict[str, Any]]
Values = Mapping[str, Mapping[str, np.ndarray]]


@dataclass
class Pieces:
    """Layers of a module's submodules by their paths, and the way back to the module's `state_dict`."""

    module: torch.nn.Module
    paths: dict[str, str] = field(default_factory=dict)
    parts: dict[str, int] = field(default_factory=dict)

    def __call__(
        self,
        path: str,
        forward: Callable[..., Any] | None = None,
        name: str = "",
        part: int | None = None,
    ) -> fe.Layer:
        """The submodule as a layer, or the piece of it that `forward` computes, which has a `name`.

        part: of a piece that reads of its parameters their parts with this number, `weight[part]`.
        """
        stem = "_".join(filter(None, (path.replace(".", "_"), name)))
        self.paths[stem] = path
        if part is not None:
            self.parts[stem] = part
        return fe.from_torch(self.module.get_submodule(path), forward, name=stem)

    def state(self, by_layer: Mapping[str, Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """The tensors of all layers under their names in the whole module."""
        made: dict[str, torch.Tensor] = {}
        for layer, state in by_layer.items():
            for name, tensor in state.items():
                path = f"{self.paths[layer]}.{name}"
                if layer in self.parts and path in made:
                    made[path][self.parts[layer]] = tensor[self.parts[layer]]
                else:
                    made[path] = tensor
        return made


@dataclass(frozen=True)
class Case:
    """A model of others.

    source: what it is called where it comes from. theirs: makes it, with random weights. loss: of one
    instance, by their own forward function. ours: from its pieces the model for amphw, whose layers are
    theirs. data: so many instances, drawn with a seed.
    """

    source: str
    theirs: Callable[[], torch.nn.Module]
    loss: Callable[[Any, dict[str, Any]], torch.Tensor]
    ours: Callable[[Pieces], Callable[[Any], None]]
    spec: fe.Spec
    data: Callable[[int, int], Data]

    def made(self) -> Made:
        """With the same random weights every time."""
        torch.manual_seed(1)
        module = self.theirs()
        pieces = Pieces(module)
        model = self.ours(pieces)
        return Made(self, module, pieces, model, fe.compile(model, self.spec))


@dataclass(frozen=True)
class Made:
    """A case with its weights."""

    case: Case
    module: torch.nn.Module
    pieces: Pieces
    model: Callable[[Any], None]
    compiled: fe.Compiled

    def ours(self, instances: Data) -> float:
        """What ours computes of the instances, all together."""
        outputs = [self.compiled.outputs(plain) for plain in instances]
        return sum(float(loss["loss"].sum()) for reported in outputs for loss in reported.values())

    def theirs(self, instances: Data, state: Mapping[str, torch.Tensor] | None = None) -> float:
        """What their own module does, with the weights that it began with, or those of a `state_dict`."""
        module = self.case.theirs()
        module.load_state_dict(state or self.module.state_dict(), strict=True)
        with torch.no_grad():
            return sum(float(self.case.loss(module.double(), plain)) for plain in instances)

    def gradients(self, instances: Data) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        """For each of their parameters its path, and its gradient by ours and by autograd, in double
        precision. Raises KeyError where one of theirs is not in ours."""
        total: dict[str, Any] = {}
        for plain in instances:
            found = self.pieces.state(self.compiled.to_torch(self.compiled.gradients(plain)))
            for path, gradient in found.items():
                total[path] = total.get(path, 0) + gradient.double()
        self.module.double().zero_grad()
        for plain in instances:
            self.case.loss(self.module, plain).backward()
        for path, parameter in self.module.named_parameters():
            assert parameter.grad is not None, f"no gradient reaches {path}"
            yield path, total[path], parameter.grad


def differences(gradients: Iterable[tuple[str, torch.Tensor, torch.Tensor]]) -> dict[str, float]:
    """By parameter the largest difference of ours and theirs, relative to the largest number in theirs.

    A softmax does not change with a bias of all keys, say, so that its gradient is nothing but rounding: the
    number that a difference is relative to is at least a millionth of the largest one in the whole model.
    """
    found = list(gradients)
    least = 1e-6 * max(float(theirs.abs().max()) for _, _, theirs in found)
    return {
        path: float((ours - theirs).abs().max()) / max(float(theirs.abs().max()), least)
        for path, ours, theirs in found
    }


def counted(logits: torch.Tensor, label: Any) -> torch.Tensor:
    """The cross-entropy of all rows together."""
    labels = torch.as_tensor(np.asarray(label).reshape(-1))
    return torch.nn.functional.cross_entropy(logits.reshape(len(labels), -1), labels, reduction="sum")
