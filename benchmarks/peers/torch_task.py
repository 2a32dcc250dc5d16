"""What the workloads share in PyTorch: on a CPU, or on a GPU, where batches lie in its memory beforehand."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .forms import BFLOAT16, PER_INSTANCE, Form
from .optim import Optimizers
from .stored import Arrays
from .task import Rules, Scores, Task


class TorchTask(Task):
    """module: its children have the names of our nodes."""

    module: nn.Module

    def build(self, parameters: Mapping[str, Arrays]) -> None:
        self.module = self.make(parameters).to(self.device)
        self._shares: dict[int, Tensor] = {}
        halved = self.form.precision == BFLOAT16
        self._cast: Any = (
            torch.autocast(self.device.partition(":")[0], torch.bfloat16) if halved else nullcontext()
        )

    def placed(self, batch: Any) -> Any:
        return batch if self.device == "cpu" else moved(batch, self.device)

    def finish(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize()

    @abstractmethod
    def make(self, parameters: Mapping[str, Arrays]) -> nn.Module:
        """The module, with these values."""

    @abstractmethod
    def forward(self, batch: Any, metric: bool) -> tuple[Tensor, Tensor | None]:
        """Sum of the loss over the batch's rows and, where asked for, of the metric."""

    @abstractmethod
    def rows(self, batch: Any) -> int:
        """Rows that the loss of a batch is a sum over."""

    def trainer(self, rules: Rules) -> Callable[[Any], None]:
        optimizers = Optimizers(self.module, rules)

        def step(batch: Any) -> None:
            optimizers.zero_grad()
            self._backward(batch)
            optimizers.step()

        return graphed(step) if self.form.graphed else step

    def evaluate(self, batch: Any) -> Scores:
        parts = self._parts(batch)
        with torch.inference_mode(), self._cast:
            got = [self.forward(part, True) for part in parts]
        loss, metric = (float(sum(each)) for each in zip(*got, strict=True))  # type: ignore[arg-type]
        return Scores(loss, metric, sum(self.rows(part) for part in parts))

    def gradients(self, batch: Any) -> Arrays:
        self.module.zero_grad(set_to_none=True)
        self._backward(batch)
        out: Arrays = {}
        for name, parameter in self.module.named_parameters():
            if parameter.grad is not None:
                g = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
                out[name] = g.cpu().numpy().copy()
        return self.ours(out)

    def ours(self, gradients: Arrays) -> Arrays:
        """From names and layout of PyTorch's layers to `node/parameter` and ours."""
        names = {"weight": "W", "bias": "b"}
        out: Arrays = {}
        for name, g in gradients.items():
            node, _, kind = name.rpartition(".")
            embedded = isinstance(self.module.get_submodule(node), nn.Embedding)
            out[f"{node}/{'E' if embedded else names[kind]}"] = g if embedded or g.ndim == 1 else g.T
        return out

    def state(self) -> Any:
        return copy.deepcopy(self.module.state_dict())

    def restore(self, state: Any) -> None:
        self.module.load_state_dict(state)

    def _parts(self, batch: Any) -> list[Any]:
        return batch if self.form.kind == PER_INSTANCE else [batch]

    def _backward(self, batch: Any) -> None:
        parts = self._parts(batch)
        rows = sum(self.rows(part) for part in parts)
        # The mean's gradient is where the backward pass begins, which saves a division each way.
        if rows not in self._shares:
            self._shares[rows] = torch.tensor(1.0 / rows, device=self.device)
        share = self._shares[rows]
        for part in parts:
            with self._cast:
                loss = self.forward(part, False)[0]
            loss.backward(share)


def graphed(step: Callable[[Any], None]) -> Callable[[Any], None]:
    """Record what a step launches for a batch, and launch it as one graph from then on."""
    graphs: dict[int, tuple[Any, Any]] = {}
    aside = torch.cuda.Stream()

    def run(batch: Any) -> None:
        if id(batch) not in graphs:
            # Recording wants buffers and libraries' work spaces to be there, and another stream.
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                step(batch)
                step(batch)
            torch.cuda.current_stream().wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step(batch)
            graphs[id(batch)] = graph, batch
        graphs[id(batch)][0].replay()

    return run


def moved(batch: Any, device: str) -> Any:
    """A batch with its tensors on that device, however they are nested."""
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, (list, tuple)):
        parts = [moved(part, device) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


class Nodes(nn.Module):
    """A module whose children are our nodes, by name (nn.ModuleDict has methods of such names)."""

    def __init__(self, nodes: Mapping[str, nn.Module]) -> None:
        super().__init__()
        for name, node in nodes.items():
            self.add_module(name, node)


def affine(values: Arrays, weight: str = "W", bias: str = "b") -> nn.Linear:
    """A linear layer with these values; ours multiply from the other side."""
    w = torch.from_numpy(np.ascontiguousarray(values[weight].T))
    made = nn.Linear(w.shape[1], w.shape[0], bias=bias in values)
    with torch.no_grad():
        made.weight.copy_(w)
        if bias in values:
            made.bias.copy_(torch.from_numpy(values[bias]))
    return made


def embedding(values: Arrays, sparse: bool = False) -> nn.Embedding:
    """An embedding with these values."""
    return nn.Embedding.from_pretrained(torch.from_numpy(values["E"].copy()), freeze=False, sparse=sparse)


def compiled(function: Callable[..., Any], form: Form, dynamic: bool) -> Callable[..., Any]:
    """The function, through `torch.compile` where the form says so."""
    if not form.compiled:
        return function
    torch._dynamo.config.cache_size_limit = 64  # one entry a shape, where shapes are static
    # On a GPU a shape's kernels are recorded, and launched as one graph.
    mode = "reduce-overhead" if torch.cuda.is_available() and not dynamic else None
    return torch.compile(function, dynamic=dynamic, mode=mode)  # type: ignore[no-any-return]


def classified(logits: Tensor, labels: Tensor, metric: bool) -> tuple[Tensor, Tensor | None]:
    """Sum of the cross-entropy, and number of rows that are right."""
    loss = nn.functional.cross_entropy(logits, labels, reduction="sum")
    return loss, (logits.argmax(1) == labels).sum() if metric else None
