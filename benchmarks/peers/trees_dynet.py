"""The Tree-LSTM in DyNet: a recursion over each tree, whose operations DyNet batches itself ("autobatch")."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

try:  # its settings must be made before it is imported
    import dynet_config  # type: ignore[import-not-found, unused-ignore]

    dynet_config.set(mem=2048, random_seed=1, autobatch=1)
except ImportError:
    pass
import dynet as dy  # type: ignore[import-not-found, unused-ignore]

from .optim_dynet import Trainers
from .stored import Arrays, StoredInstances
from .task import Rules, Scores, Task
from .trees_shape import Tree, trees

NODES = ("embed", "leaf", "branch", "head")


class DynetTrees(Task):
    """Our nodes are embed, leaf, branch and head; gates lie as i, o, u and i, o, f_left, f_right, u."""

    def load(self, stored: StoredInstances) -> None:
        self._trees = trees(stored)

    def build(self, parameters: Mapping[str, Arrays]) -> None:
        self._collection = dy.ParameterCollection()
        self._nodes = {name: self._collection.add_subcollection(name) for name in NODES}
        self._embed = self._nodes["embed"].lookup_parameters_from_numpy(parameters["embed"]["E"])
        self._affine = {}
        for name in NODES[1:]:
            weight, bias = np.ascontiguousarray(parameters[name]["W"].T), parameters[name]["b"]
            self._affine[name] = tuple(map(self._nodes[name].parameters_from_numpy, (bias, weight)))
        self._width = parameters["head"]["W"].shape[0]

    @property
    def units(self) -> int:
        return len(self._trees)

    def collate(self, chosen: Sequence[int]) -> list[Tree]:
        return [self._trees[i] for i in chosen]

    def trainer(self, rules: Rules) -> Callable[[Any], None]:
        trainers = Trainers(self._collection, self._nodes, rules)

        def step(batch: list[Tree]) -> None:
            self._backward(batch)
            trainers.update()

        return step

    def evaluate(self, batch: list[Tree]) -> Scores:
        logits, labels = self._forward(batch)
        y, rows = dy.concatenate_cols(logits).npvalue(), np.arange(len(labels))
        y = y - y.max(0)
        loss = np.log(np.exp(y).sum(0)) - y[labels, rows]
        return Scores(float(loss.sum()), float((y.argmax(0) == labels).sum()), len(labels))

    def gradients(self, batch: list[Tree]) -> Arrays:
        self._backward(batch)
        out = {"embed/E": self._embed.grad_as_array()}
        for name, (bias, weight) in self._affine.items():
            out |= {f"{name}/W": weight.grad_as_array().T, f"{name}/b": bias.grad_as_array()}
        return out

    def state(self) -> Any:
        arrays = [each.as_array() for pair in self._affine.values() for each in pair]
        return self._embed.as_array(), arrays

    def restore(self, state: Any) -> None:
        embedded, arrays = state
        self._embed.init_from_array(embedded)
        for each, array in zip((p for pair in self._affine.values() for p in pair), arrays, strict=True):
            each.set_value(array)

    def _backward(self, batch: list[Tree]) -> None:
        logits, labels = self._forward(batch)
        losses = [dy.pickneglogsoftmax(y, label) for y, label in zip(logits, labels, strict=True)]
        mean = dy.esum(losses) / len(losses)
        mean.forward()
        mean.backward()

    def _forward(self, batch: list[Tree]) -> tuple[list[Any], list[int]]:
        """A new computation graph -> logits and labels of all nodes."""
        dy.renew_cg()
        logits, labels = [], []
        for tree in batch:
            states: list[tuple[Any, Any]] = []
            for word in tree.word.tolist():
                states.append(self._leaf(self._embed[word]))
            for left, right in tree.child.tolist():
                states.append(self._branch(*states[left], *states[right]))
            logits += [dy.affine_transform([*self._pair("head"), h]) for h, _ in states]
            labels += tree.label.tolist()
        return logits, labels

    def _leaf(self, e: Any) -> tuple[Any, Any]:
        z, wide = dy.affine_transform([*self._pair("leaf"), e]), self._width
        i, o = (dy.logistic(dy.pick_range(z, k * wide, (k + 1) * wide)) for k in range(2))
        c = dy.cmult(i, dy.tanh(dy.pick_range(z, 2 * wide, 3 * wide)))
        return dy.cmult(o, dy.tanh(c)), c

    def _branch(self, h_left: Any, c_left: Any, h_right: Any, c_right: Any) -> tuple[Any, Any]:
        z = dy.affine_transform([*self._pair("branch"), dy.concatenate([h_left, h_right])])
        wide = self._width
        i, o, f_left, f_right = (dy.logistic(dy.pick_range(z, k * wide, (k + 1) * wide)) for k in range(4))
        u = dy.tanh(dy.pick_range(z, 4 * wide, 5 * wide))
        c = dy.cmult(i, u) + dy.cmult(f_left, c_left) + dy.cmult(f_right, c_right)
        return dy.cmult(o, dy.tanh(c)), c

    def _pair(self, name: str) -> tuple[Any, Any]:
        pair: tuple[Any, Any] = self._affine[name]
        return pair
