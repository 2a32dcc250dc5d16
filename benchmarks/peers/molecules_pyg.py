"""The gated graph network in PyTorch Geometric."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch_geometric.nn import GatedGraphConv, MessagePassing

from .molecules import TYPES, GatedGraphs, Graphs
from .stored import Arrays
from .torch_task import Nodes


class PygGraphs(GatedGraphs):
    """propagate: the same model as a message-passing layer. gated-conv: the library's own layer, which is a
    model of less work: it knows no types of bonds."""

    def make(self, parameters: Mapping[str, Arrays]) -> nn.Module:
        module = super().make(parameters)
        if not self.form.name.startswith("gated-conv"):
            self._typed = TypedMessages()
            self._messages = self._propagate
            return module
        self._conv = GatedGraphConv(self._update.hidden_size, self.settings["steps"])
        with torch.no_grad():
            self._conv.weight.copy_(self._edges[0].weight.T.expand_as(self._conv.weight))
        self._conv.rnn = self._update
        return Nodes({"embed": self._embed, "update": self._conv, **self._end()})

    def propagated(self, batch: Graphs) -> Tensor:
        if not self.form.name.startswith("gated-conv"):
            return super().propagated(batch)
        h: Tensor = self._conv(self._embed(batch.kind), torch.stack([batch.src, batch.dst]))
        return h

    def _propagate(self, batch: Graphs, h: Tensor) -> Tensor:
        sent = self._through_all(h).view(-1, h.shape[1])
        edges = torch.stack([batch.src * len(TYPES) + batch.type, batch.dst])
        arrived: Tensor = self._typed(sent, edges, len(h))
        return arrived


class TypedMessages(MessagePassing):
    """Adds up what comes along the edges from `sent`, in which an atom has a row for each type of bond."""

    def __init__(self) -> None:
        super().__init__(aggr="add")

    def forward(self, sent: Tensor, edges: Tensor, atoms: int) -> Tensor:
        arrived: Tensor = self.propagate(edges, x=(sent, None), size=(len(sent), atoms))
        return arrived
