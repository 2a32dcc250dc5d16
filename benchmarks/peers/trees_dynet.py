"""The Tree-LSTM in DyNet: a recursion over each tree, whose operations DyNet batches itself ("autobatch")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .dynet_task import DynetTask, dy
from .stored import Arrays, StoredInstances
from .trees_shape import Tree, trees


class DynetTrees(DynetTask):
    """Our nodes are embed, leaf, branch and head; gates lie as i, o, u and i, o, f_left, f_right, u."""

    def load(self, stored: StoredInstances) -> None:
        self._trees = trees(stored)

    def build(self, parameters: Mapping[str, Arrays]) -> None:
        super().build(parameters)
        self._width = parameters["head"]["W"].shape[0]

    @property
    def units(self) -> int:
        return len(self._trees)

    def collate(self, chosen: Sequence[int]) -> list[Tree]:
        return [self._trees[i] for i in chosen]

    def outputs(self, batch: list[Tree]) -> tuple[list[Any], list[int]]:
        logits, labels = [], []
        for tree in batch:
            states: list[tuple[Any, Any]] = []
            for word in tree.word.tolist():
                states.append(self._leaf(self.row("embed", word)))
            for left, right in tree.child.tolist():
                states.append(self._branch(*states[left], *states[right]))
            logits += [self.affine("head", h) for h, _ in states]
            labels += tree.label.tolist()
        return logits, labels

    def _leaf(self, e: Any) -> tuple[Any, Any]:
        z, wide = self.affine("leaf", e), self._width
        i, o = (dy.logistic(dy.pick_range(z, k * wide, (k + 1) * wide)) for k in range(2))
        c = dy.cmult(i, dy.tanh(dy.pick_range(z, 2 * wide, 3 * wide)))
        return dy.cmult(o, dy.tanh(c)), c

    def _branch(self, h_left: Any, c_left: Any, h_right: Any, c_right: Any) -> tuple[Any, Any]:
        z = self.affine("branch", dy.concatenate([h_left, h_right]))
        wide = self._width
        i, o, f_left, f_right = (dy.logistic(dy.pick_range(z, k * wide, (k + 1) * wide)) for k in range(4))
        u = dy.tanh(dy.pick_range(z, 4 * wide, 5 * wide))
        c = dy.cmult(i, u) + dy.cmult(f_left, c_left) + dy.cmult(f_right, c_right)
        return dy.cmult(o, dy.tanh(c)), c
