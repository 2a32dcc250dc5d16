"""The models once more, in PyTorch, for `record.py`: as their papers write them, one instance at a time.

Loops and recursion, in float64, sharing nothing with amphw but the tables and the parameters' names and
layout. To add one: a function of the parameters, an instance and the configuration to the sum of the losses,
and a line in ENTRIES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d, cross_entropy

from amphw.ir.instance import Instance

MARGIN = 1e-5
"""How far from its kink a ReLU or a maximum has to be. Sums in float32 differ from float64's by less."""


class TooNear(ValueError):
    """A ReLU or a maximum is so near its kink that float32 may be on the other side of it."""


class Parameters:
    """`p.node.name` is a parameter. Each has a gradient of its own, in float64."""

    def __init__(self, values: dict[str, np.ndarray]) -> None:
        self.all = {n: torch.tensor(v, dtype=torch.float64, requires_grad=True) for n, v in values.items()}

    def __getattr__(self, node: str) -> Node:
        return Node(self.all, node)

    def __getitem__(self, node: str) -> Node:
        return Node(self.all, node)


@dataclass
class Node:
    parameters: dict[str, Tensor]
    node: str

    def __getattr__(self, name: str) -> Tensor:
        return self.parameters[f"{self.node}.{name}"]

    def __call__(self, x: Tensor) -> Tensor:
        """x W + b."""
        return x @ self.W + self.b


# --- what they share ------------------------------------------------------------------------------------


def table(instance: Instance, name: str) -> Tensor:
    return torch.tensor(np.asarray(instance.tables[name], np.int64))


def image(instance: Instance) -> Tensor:
    return torch.tensor(instance.data["image"], dtype=torch.float64)


def zeros(*shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=torch.float64)


def classified(logits: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(logits, labels, reduction="sum")


def relu(x: Tensor) -> Tensor:
    if x.detach().abs().min() < MARGIN:
        raise TooNear
    return torch.relu(x)


def max_pool(x: Tensor) -> Tensor:
    """The largest of 2 x 2 pixels: [images, channels, height, width] -> half of both.

    Equal pixels, as all are behind a ReLU or in an image's background, are no danger: they were computed from
    equal numbers, and so whichever passes a gradient on, the parameters receive the same.
    """
    pixels = x.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4).sort(descending=True).values
    gaps = pixels[..., :1].detach() - pixels.detach()
    if ((gaps > 1e-12) & (gaps < MARGIN)).any():
        raise TooNear
    return pixels[..., 0]


def gru(node: Node, x: Tensor, h: Tensor) -> Tensor:
    """Cho et al. (2014), with the reset gate behind the product."""
    r_x, z_x, n_x = (x @ node.Wi + node.bi).chunk(3, -1)
    r_h, z_h, n_h = (h @ node.Wh + node.bh).chunk(3, -1)
    z = (z_x + z_h).sigmoid()
    return (1 - z) * (n_x + (r_x + r_h).sigmoid() * n_h).tanh() + z * h


def lstm(node: Node, inputs: Iterable[Tensor]) -> list[Tensor]:
    """Hochreiter and Schmidhuber (1997), with the forget gate of Gers et al. (2000): h after each input."""
    return [h for h, _ in lstm_states(node, inputs)]


def lstm_states(
    node: Node, inputs: Iterable[Tensor], start: tuple[Tensor, Tensor] | None = None
) -> list[tuple[Tensor, Tensor]]:
    """h and the cell after each input."""
    h, c = start or (zeros(len(node.b) // 4), zeros(len(node.b) // 4))
    states = []
    for x in inputs:
        i, f, o, u = node(torch.cat([x, h])).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * u.tanh()
        h = o.sigmoid() * c.tanh()
        states.append((h, c))
    return states


def gated_graph(
    p: Parameters, h: list[Tensor], edges: list[tuple[int, int, str]], steps: int
) -> list[Tensor]:
    """Li et al. (ICLR 2016), 3.2: in each step what arrives at a node is added up, one edge after the other.

    edges: source, target and the layer that a state goes through on its way.
    """
    for _ in range(steps):
        arrived = [torch.zeros_like(each) for each in h]
        for source, target, layer in edges:
            arrived[target] = arrived[target] + p[layer](h[source])
        h = [gru(p.update, m, each) for m, each in zip(arrived, h, strict=True)]
    return h


def edges_of(instance: Instance, types: Iterable[str], prefix: str = "") -> list[tuple[int, int, str]]:
    """Edges lie by their type in an instance's tables."""
    source, target = (table(instance, prefix + end).tolist() for end in ("source", "target"))
    layers = np.repeat(list(types), instance.tables[f"{prefix}of_type"]).tolist()
    return list(zip(source, target, layers, strict=True))


# --- the models -----------------------------------------------------------------------------------------


def list_reduction(p: Parameters, instance: Instance, cfg: Any) -> Tensor:
    h = zeros(instance.attrs["batch"], cfg.hidden)
    for tokens in table(instance, "tokens"):
        x = p.cell.E[tokens]
        h = gru(p.cell, x, h) if cfg.cell == "gru" else relu(p.cell(torch.cat([x, h], 1)))
    return classified(p.head(h), table(instance, "label"))


def mnist(p: Parameters, instance: Instance, cfg: Any) -> Tensor:
    x = image(instance)
    for node in ("linear1", "linear2", "linear3"):
        x = relu(p[node](x))
    return classified(p.linear4(x), table(instance, "label"))


def ako_mnist(p: Parameters, instance: Instance, cfg: Any) -> Tensor:
    """Watcharapichat et al. (SoCC 2016): three convolutions, each with a ReLU and pooling, and two layers."""
    x = image(instance).reshape(-1, 1, 28, 28)
    for node, size, padding in ((p.conv1, 5, 0), (p.conv2, 5, 0), (p.conv3, 3, 1)):
        # A kernel is a column of W: over the rows of its window, their pixels, and the channels of each.
        kernels = node.W.T.reshape(-1, size, size, x.shape[1]).permute(0, 3, 1, 2)
        x = max_pool(relu(conv2d(x, kernels, node.b, padding=padding)))
    hidden = relu(p.hidden(x.permute(0, 2, 3, 1).flatten(1)))
    return classified(p.head(hidden), table(instance, "label"))


def tree_lstm(p: Parameters, instance: Instance, cfg: Any) -> Tensor:
    """Tai et al. (ACL 2015), 3.2, with two children; every node is classified."""
    words, children = table(instance, "word"), table(instance, "child")
    hidden: dict[int, Tensor] = {}

    def visit(node: int) -> tuple[Tensor, Tensor]:
        """h and c of a node. The words come first, then the nodes above them."""
        if node < len(words):
            i, o, u = p.leaf(p.embed.E[words[node]]).chunk(3)
            kept: Any = 0.0
        else:
            (left, c_left), (right, c_right) = map(visit, children[node - len(words)].tolist())
            i, o, f_left, f_right, u = p.branch(torch.cat([left, right])).chunk(5)
            kept = f_left.sigmoid() * c_left + f_right.sigmoid() * c_right
        c = i.sigmoid() * u.tanh() + kept
        h = o.sigmoid() * c.tanh()
        hidden[node] = h
        return h, c

    visit(len(words) + len(children) - 1)
    states = torch.stack([hidden[node] for node in sorted(hidden)])
    return classified(p.head(states), table(instance, "label"))


def ggnn(p: Parameters, instance: Instance, cfg: Any) -> Tensor:
    """Li et al. (ICLR 2016), with the readout of Gilmer et al. (ICML 2017)."""
    kind = table(instance, "kind")
    bonds = edges_of(instance, [f"edge_{name}" for name in ("single", "double", "triple", "aromatic")])
    h = gated_graph(p, list(p.embed.E[kind]), bonds, cfg.steps)
    y = zeros(cfg.hidden)
    for k, each in zip(kind, h, strict=True):
        gate, value = p.readout(each).chunk(2)
        y = y + (gate + p.readout.T[k]).sigmoid() * value.tanh()
    dipole = float(instance.tables["mu"][0]) * 1e-4
    return (p.output(y) - (dipole - 2.668) / 1.477).square().sum()


def babi15(p: Parameters, instance: Instance, cfg: Any) -> Tensor:
    """Li et al. (ICLR 2016), 5.1: a score for each node, of its last state and its first."""
    first = list(p.embed.E[table(instance, "story_asked")])
    last = gated_graph(p, first, edges_of(instance, ("is", "fears"), "story_"), cfg.steps)
    scores = [torch.cat([h, h0]) @ p.score.W for h, h0 in zip(last, first, strict=True)]
    return classified(torch.stack(scores, 1), table(instance, "answer"))


def bilstm(p: Parameters, instance: Instance, cfg: Any) -> Tensor:
    """Lample et al. (NAACL 2016), 4.1, with a perceptron for their CRF, as in DyNet's benchmark."""
    lengths = table(instance, "words_letters_length").tolist()
    spellings = p.letter.E[table(instance, "words_letters")].split(lengths)

    def spelled(letters: Tensor) -> Tensor:
        return torch.cat([lstm(p.spell_ahead, letters)[-1], lstm(p.spell_back, letters.flip(0))[-1]])

    # 0 is what words of no embedding have in common.
    numbers = table(instance, "words_word").tolist()
    words = [p.embed.E[k] if k else spelled(letters) for k, letters in zip(numbers, spellings, strict=True)]
    before, behind = lstm(p.read_ahead, words), lstm(p.read_back, words[::-1])[::-1]
    states = torch.stack([torch.cat(both) for both in zip(before, behind, strict=True)])
    return classified(p.head(p.hidden(states).tanh()), table(instance, "words_tag"))


def sampled_softmax(node: Node, states: list[Tensor], true: Tensor, instance: Instance) -> Tensor:
    """Jean et al. (ACL 2015), 3: a softmax over drawn words and the true one, each score less the logarithm
    of how likely it is to be drawn, which by Zipf's law is 1 / (k + 1) but for a factor."""
    candidates = table(instance, "candidates_words").tolist()
    assert instance.tables["candidates_drawn"].tolist() == [1]
    losses = []
    for h, word in zip(states, true.tolist(), strict=True):
        among = torch.tensor([word, *(k for k in candidates if k != word)])
        scores = node.W[among] @ h + node.b[among, 0] - (1 / (among + 1.0)).log()
        losses.append(-scores.log_softmax(0)[0])
    return torch.stack(losses).sum()


def language_model(p: Parameters, instance: Instance, cfg: Any) -> Tensor:
    """A recurrent network in front of that softmax."""
    states = lstm(p.cell, list(p.embed.E[table(instance, "words_word")]))
    return sampled_softmax(p.output, states, table(instance, "words_next"), instance)


def translation(p: Parameters, instance: Instance, cfg: Any) -> Tensor:
    """Sutskever et al. (NeurIPS 2014), 2: the decoder begins where the encoder has ended."""
    source, before = table(instance, "source"), table(instance, "target_before")
    read = lstm_states(p.encoder, list(p.source.E[source]))[-1]
    states = [h for h, _ in lstm_states(p.decoder, list(p.target.E[before]), read)]
    return sampled_softmax(p.output, states, table(instance, "target_word"), instance)


def layer_norm(node: Node, x: Tensor) -> Tensor:
    """Ba et al. (2016), as PyTorch has it."""
    return torch.layer_norm(x, x.shape[1:], node.scale, node.shift, 1e-5)


def transformer(p: Parameters, instance: Instance, cfg: Any) -> Tensor:
    """Vaswani et al. (NIPS 2017), 3.1 and 3.2: an encoder, with keys that have no bias."""
    letters = table(instance, "text_letter")
    h = p.embed.E[letters] + p.place.E[: len(letters)]
    for k in range(cfg.layers):
        keys = h @ p[f"key{k}"].W
        columns = [x.chunk(cfg.heads, 1) for x in (p[f"query{k}"](h), keys, p[f"value{k}"](h))]
        heads = [(q @ key.T / q.shape[1] ** 0.5).softmax(1) @ v for q, key, v in zip(*columns, strict=True)]
        h = layer_norm(p[f"seen{k}"], h + p[f"mix{k}"](torch.cat(heads, 1)))
        h = layer_norm(p[f"thought{k}"], h + p[f"outer{k}"](relu(p[f"inner{k}"](h))))
    return classified(p.head(h), table(instance, "text_other"))


class Entry(NamedTuple):
    """What is recorded: a model, how the sum of an instance's losses is computed, a small configuration."""

    model: str
    loss: Callable[[Parameters, Instance, Any], Tensor]
    config: dict[str, Any]


_LIST_REDUCTION = {"hidden": 12, "embedding": 6, "batch": 3}
_TAGGER = {"embedding": 6, "letter": 4, "spelling": 3, "hidden": 5, "perceptron": 6, "vocabulary": 2000}
_WORDS = {"vocabulary": 60, "embedding": 6, "hidden": 5, "samples": 8, "sentences": 60}

ENTRIES = {
    "list-reduction": Entry("list-reduction", list_reduction, _LIST_REDUCTION),
    "list-reduction-gru": Entry("list-reduction", list_reduction, _LIST_REDUCTION | {"cell": "gru"}),
    "mnist": Entry("mnist", mnist, {"width": 10, "batch": 2}),
    "ako-mnist": Entry("ako-mnist", ako_mnist, {"kernels": [3, 4, 5], "hidden": 10, "batch": 2}),
    "tree-lstm": Entry("tree-lstm", tree_lstm, {"hidden": 8, "embedding": 10, "vocabulary": 400}),
    "ggnn": Entry("ggnn", ggnn, {"hidden": 10, "steps": 3}),
    "babi15": Entry("babi15", babi15, {"hidden": 5, "steps": 2}),
    "bilstm": Entry("bilstm", bilstm, _TAGGER),
    "language-model": Entry("language-model", language_model, _WORDS),
    "translation": Entry("translation", translation, _WORDS),
    "transformer": Entry("transformer", transformer, {"width": 6, "heads": 2, "inner": 5, "sequences": 60}),
}
"""By the name of the file."""
