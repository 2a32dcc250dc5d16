"""What the workloads share in DyNet: a new computation graph for each batch, whose operations DyNet batches
itself ("autobatch")."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

try:  # its settings must be made before it is imported
    import dynet_config  # type: ignore[import-not-found, unused-ignore]

    dynet_config.set(mem=2048, random_seed=1, autobatch=1)
except ImportError:
    pass
import dynet as dy  # type: ignore[import-not-found, unused-ignore]

from .optim_dynet import Trainers
from .stored import Arrays
from .task import Rules, Scores, Task


class DynetTask(Task):
    """A batch is a list of instances. Parameters lie by `node/name`, and multiply from the left; `E` is a
    table that is read by rows."""

    def build(self, parameters: Mapping[str, Arrays]) -> None:
        self._collection = dy.ParameterCollection()
        # Names of collections have no underscores in DyNet.
        add = self._collection.add_subcollection
        self._nodes = {node: add(node.replace("_", "-")) for node in parameters}
        self._own: dict[str, Any] = {}
        for node, values in parameters.items():
            own = self._nodes[node]
            for name, value in self.theirs(node, values).items():
                make = own.lookup_parameters_from_numpy if name == "E" else own.parameters_from_numpy
                self._own[f"{node}/{name}"] = make(np.ascontiguousarray(value))

    @abstractmethod
    def outputs(self, batch: Any) -> tuple[list[Any], list[int]]:
        """Logits and label of every row of a batch, in a computation graph that is new."""

    def theirs(self, node: str, values: Arrays) -> Arrays:
        """A node's parameters in DyNet's layout."""
        return {name: turned(name, value) for name, value in values.items()}

    def ours(self, gradients: Arrays) -> Arrays:
        """From their names and layout, by `node/name`, to ours."""
        return {name: turned(name.rpartition("/")[2], g) for name, g in gradients.items()}

    def affine(self, node: str, x: Any) -> Any:
        """W x + b with the parameters of a node."""
        return dy.affine_transform([self._own[f"{node}/b"], self._own[f"{node}/W"], x])

    def row(self, node: str, number: int) -> Any:
        """A row of a node's table."""
        return self._own[f"{node}/E"][number]

    def trainer(self, rules: Rules) -> Callable[[Any], None]:
        trainers = Trainers(self._collection, self._nodes, rules)

        def step(batch: Any) -> None:
            self._backward(batch)
            trainers.update()

        return step

    def evaluate(self, batch: Any) -> Scores:
        logits, labels = self._graph(batch)
        y, rows = dy.concatenate_cols(logits).npvalue(), np.arange(len(labels))
        y = y - y.max(0)
        loss = np.log(np.exp(y).sum(0)) - y[labels, rows]
        return Scores(float(loss.sum()), float((y.argmax(0) == labels).sum()), len(labels))

    def gradients(self, batch: Any) -> Arrays:
        self._backward(batch)
        return self.ours({name: each.grad_as_array() for name, each in self._own.items()})

    def state(self) -> Any:
        return {name: each.as_array() for name, each in self._own.items()}

    def restore(self, state: Any) -> None:
        for name, value in state.items():
            own = self._own[name]
            (own.init_from_array if name.endswith("/E") else own.set_value)(value)

    def _graph(self, batch: Any) -> tuple[list[Any], list[int]]:
        dy.renew_cg()
        return self.outputs(batch)

    def _backward(self, batch: Any) -> None:
        logits, labels = self._graph(batch)
        losses = [dy.pickneglogsoftmax(y, label) for y, label in zip(logits, labels, strict=True)]
        mean = dy.esum(losses) / len(losses)
        mean.forward()
        mean.backward()


def turned(name: str, value: np.ndarray) -> np.ndarray:
    """A product's matrix the other way round; what is none stays as it is."""
    return value.T if name == "W" else value
