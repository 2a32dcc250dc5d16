"""The binary Tree-LSTM, with a loss at every node. A batch of trees is computed from the leaves upwards, a
level (nodes of equal height) at a time; the forms differ in how a level finds its children's states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .forms import PER_INSTANCE, base
from .stored import Arrays, StoredInstances
from .torch_task import Nodes, TorchTask, affine, classified, compiled, embedding
from .trees_shape import Tree, trees


class Levels(NamedTuple):
    """A batch of trees, its nodes in the order of their height.

    words: of the leaves. labels: of all nodes. children: for each level above the leaves, where the children
    of its nodes are, left and right in turn. sends: how many of a level's nodes each level above it reads.
    picks: for each level above the leaves, the same as `children`, within what was sent to it.
    """

    words: Tensor
    labels: Tensor
    children: list[Tensor]
    picks: list[Tensor]
    sends: list[list[int]]


class TreeLSTM(TorchTask):
    """Our nodes are embed, leaf, branch and head; gates lie as i, o, u and i, o, f_left, f_right, u."""

    def make(self, parameters: Mapping[str, Arrays]) -> nn.Module:
        self._embed = embedding(parameters["embed"], sparse=True)
        self._leaf, self._branch, self._head = (affine(parameters[n]) for n in ("leaf", "branch", "head"))
        self._width = self._head.weight.shape[1]
        self._leaf_cell = compiled(self._eager_leaf, self.form, dynamic=True)
        self._branch_cell = compiled(self._eager_branch, self.form, dynamic=True)
        climb = base(self.form.name)
        self._climb = {
            "cat": self._cat,
            "joint": self._joint,
            "inplace": self._inplace,
            "split": self._split,
        }.get(climb)
        return Nodes({"embed": self._embed, "leaf": self._leaf, "branch": self._branch, "head": self._head})

    def load(self, stored: StoredInstances) -> None:
        self._trees = trees(stored)

    @property
    def units(self) -> int:
        return len(self._trees)

    def collate(self, chosen: Sequence[int]) -> Levels | Tree:
        if self.form.kind == PER_INSTANCE:
            return self._trees[chosen[0]]
        return collate([self._trees[i] for i in chosen])

    def rows(self, batch: Levels | Tree) -> int:
        return len(batch.labels if isinstance(batch, Levels) else batch.label)

    def forward(self, batch: Levels | Tree, metric: bool) -> tuple[Tensor, Tensor | None]:
        if isinstance(batch, Tree):
            h, labels = self._recursive(batch), torch.from_numpy(batch.label).to(self.device)
        else:
            assert self._climb is not None
            h, labels = self._climb(batch), batch.labels
        return classified(self._head(h), labels, metric)

    # --- cells --------------------------------------------------------------------------------------

    def _eager_leaf(self, e: Tensor) -> tuple[Tensor, Tensor]:
        # Backward, a split is one concatenation, where slices would each fill a whole gradient with zeros.
        gates, u = self._leaf(e).split([2 * self._width, self._width], 1)
        i, o = torch.sigmoid(gates).chunk(2, 1)
        c = i * torch.tanh(u)
        return o * torch.tanh(c), c

    def _eager_branch(self, h: Tensor, c_left: Tensor, c_right: Tensor) -> tuple[Tensor, Tensor]:
        gates, u = self._branch(h).split([4 * self._width, self._width], 1)
        i, o, f_left, f_right = torch.sigmoid(gates).chunk(4, 1)
        c = i * torch.tanh(u) + f_left * c_left + f_right * c_right
        return o * torch.tanh(c), c

    # --- ways up the trees: each returns h of all nodes in the batch's order ---------------------------

    def _cat(self, batch: Levels) -> Tensor:
        h, c = self._leaf_cell(self._embed(batch.words))
        all_h, all_c, wide = h, c, self._width
        for children in batch.children:
            hs = all_h.index_select(0, children).view(-1, 2 * wide)
            cs = all_c.index_select(0, children).view(-1, 2 * wide)
            h, c = self._branch_cell(hs, *cs.chunk(2, 1))
            all_h, all_c = torch.cat([all_h, h]), torch.cat([all_c, c])
        return all_h

    def _joint(self, batch: Levels) -> Tensor:
        states = torch.cat(self._leaf_cell(self._embed(batch.words)), 1)
        for children in batch.children:
            above = self._above(states.index_select(0, children))
            states = torch.cat([states, torch.cat(above, 1)])
        return states[:, : self._width]

    def _inplace(self, batch: Levels) -> Tensor:
        h, c = self._leaf_cell(self._embed(batch.words))
        wide = self._width
        all_h, all_c = h.new_empty(len(batch.labels), wide), h.new_empty(len(batch.labels), wide)
        at = len(h)
        all_h[:at], all_c[:at] = h, c
        for children in batch.children:
            hs = all_h.index_select(0, children).view(-1, 2 * wide)
            cs = all_c.index_select(0, children).view(-1, 2 * wide)
            h, c = self._branch_cell(hs, *cs.chunk(2, 1))
            all_h[at : at + len(h)], all_c[at : at + len(h)] = h, c
            at += len(h)
        return all_h

    def _split(self, batch: Levels) -> Tensor:
        levels = len(batch.sends)
        waiting: list[list[Tensor]] = [[] for _ in range(levels + 1)]  # the last: nobody reads roots
        all_h = []
        for level in range(levels):
            if level == 0:
                h, c = self._leaf_cell(self._embed(batch.words))
            else:
                below = waiting[level]
                states = torch.cat(below) if len(below) > 1 else below[0]
                h, c = self._above(states.index_select(0, batch.picks[level - 1]))
                waiting[level] = []
            all_h.append(h)
            parts = torch.cat([h, c], 1).split(batch.sends[level])
            for above, part in enumerate(parts, level + 1):
                if len(part):
                    waiting[above].append(part)
        return torch.cat(all_h)

    def _above(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """States [2n, h and c] of children -> h and c of their n parents."""
        wide = self._width
        h, c = states.split([wide, wide], 1)
        c_left, c_right = c.view(-1, 2, wide).unbind(1)
        result: tuple[Tensor, Tensor] = self._branch_cell(h.reshape(-1, 2 * wide), c_left, c_right)
        return result

    def _recursive(self, tree: Tree) -> Tensor:
        """As one writes it down: a function that calls itself on both children."""
        words = len(tree.word)
        embedded = self._embed(torch.from_numpy(tree.word).to(self.device))
        states: list[Tensor] = [torch.empty(0)] * len(tree.label)

        def up(node: int) -> tuple[Tensor, Tensor]:
            if node < words:
                h, c = self._leaf_cell(embedded[node : node + 1])
            else:
                left, right = (int(child) for child in tree.child[node - words])
                (h_left, c_left), (h_right, c_right) = up(left), up(right)
                h, c = self._branch_cell(torch.cat([h_left, h_right], 1), c_left, c_right)
            states[node] = h
            return h, c

        up(len(tree.label) - 1)
        return torch.cat(states)


def collate(chosen: Sequence[Tree]) -> Levels:
    """Order the nodes of some trees by height, and within a height by the height of the parent.

    The second makes what a level sends to each level above it a contiguous piece.
    """
    first = np.cumsum([0, *(len(t.label) for t in chosen)])
    height = np.concatenate([t.height for t in chosen])
    label = np.concatenate([t.label for t in chosen])
    levels = int(height.max()) + 1
    parent = np.full(len(height), -1)
    child = np.zeros((len(height), 2), np.int64)
    word = np.zeros(len(height), np.int64)
    for at, tree in zip(first.tolist(), chosen, strict=False):
        words = len(tree.word)
        inner = at + words + np.arange(len(tree.child))
        word[at : at + words] = tree.word
        child[inner] = at + tree.child
        parent[at + tree.child] = inner[:, None]
    reader = np.where(parent >= 0, height[parent], levels)  # the level that reads a node
    order = np.lexsort((reader, height))
    position = np.empty_like(order)
    position[order] = np.arange(len(order))

    ordered_height, ordered_reader = height[order], reader[order]
    children, picks = [], []
    for level in range(1, levels):
        wanted = position[child[order[ordered_height == level]]].reshape(-1)
        children.append(torch.from_numpy(wanted))
        # What has been sent to this level, in the order of arrival, is what it reads in ascending order.
        arrived = np.flatnonzero(ordered_reader == level)
        picks.append(torch.from_numpy(np.searchsorted(arrived, wanted)))
    sends = [
        np.bincount(ordered_reader[ordered_height == level], minlength=levels + 1)[level + 1 :].tolist()
        for level in range(levels)
    ]
    leaves = order[ordered_height == 0]
    return Levels(torch.from_numpy(word[leaves]), torch.from_numpy(label[order]), children, picks, sends)
