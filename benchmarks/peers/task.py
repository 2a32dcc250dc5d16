"""What the server needs of a workload, whatever framework it is written in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .forms import PER_INSTANCE, Form
from .stored import Arrays, StoredInstances

Rules = Mapping[str, Mapping[str, Any]]
"""By node: the fields of `amphw.ir.update.UpdateRule`."""


class Scores(NamedTuple):
    """Sums over `rows` rows: of the loss, and of the metric."""

    loss: float
    metric: float
    rows: int


class Task(ABC):
    """One workload in one form, with instances and parameters of its own.

    What `units` numbers are single sequences, images, trees or molecules, however the other side packs them.
    parameters: initial values by node and name, from which all sizes are read. settings: the model's. device:
    where it is computed, as the framework calls it.
    """

    def __init__(
        self,
        form: Form,
        stored: StoredInstances,
        parameters: Mapping[str, Arrays],
        settings: Mapping[str, Any],
        device: str = "cpu",
    ) -> None:
        self.form, self.settings, self.device = form, settings, device
        self.load(stored)
        self.build(parameters)

    @abstractmethod
    def load(self, stored: StoredInstances) -> None:
        """Keep the instances, unpacked."""

    @abstractmethod
    def build(self, parameters: Mapping[str, Arrays]) -> None:
        """Make the model."""

    @property
    @abstractmethod
    def units(self) -> int:
        """How many instances there are."""

    @abstractmethod
    def collate(self, chosen: Sequence[int]) -> Any:
        """A batch of these instances."""

    @abstractmethod
    def trainer(self, rules: Rules) -> Callable[[Any], None]:
        """A function that does forward, backward and update of a batch, with optimisers of its own."""

    @abstractmethod
    def evaluate(self, batch: Any) -> Scores:
        """Forward alone."""

    @abstractmethod
    def gradients(self, batch: Any) -> Arrays:
        """Gradients of the mean loss of a batch's rows, by node and parameter (ours: `leaf/W`)."""

    @abstractmethod
    def state(self) -> Any:
        """A copy of the parameters."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Take over parameters, of this task or of another one in the same form."""

    def placed(self, batch: Any) -> Any:
        """A batch where the device wants it."""
        return batch

    def finish(self) -> None:
        """Wait until everything that was begun has been computed."""
        return

    def shape(self, batch: Any) -> Any:
        """Batches of equal shape run the same compiled code."""
        return None

    def groups(self, order: np.ndarray, size: int) -> Iterator[np.ndarray]:
        """Cut an order of instances into batches; some may be smaller."""
        for at in range(0, len(order), size):
            yield order[at : at + size]

    def batches(self, order: np.ndarray, size: int, whole: bool = False) -> list[tuple[int, Any]]:
        """[(instances, batch)]; whole: leave out what is smaller than `size`."""
        groups = [g for g in self.groups(order, size) if not whole or len(g) == size]
        if self.form.kind == PER_INSTANCE:
            return [(len(g), [self.placed(self.collate([i])) for i in g.tolist()]) for g in groups]
        return [(len(g), self.placed(self.collate(g.tolist()))) for g in groups]


def of_one_length(lengths: np.ndarray, order: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Batches of at most `size` instances of one length; those of all lengths in a mixed order.

    lengths: of all instances. order: numbers of instances, at least one; what comes first decides the mix.
    """
    cut = []
    for length in np.unique(lengths[order]):
        chosen = order[lengths[order] == length]
        cut += [chosen[at : at + size] for at in range(0, len(chosen), size)]
    for i in np.random.default_rng(int(order[0])).permutation(len(cut)):
        yield cut[i]


def of_nearly_one_length(lengths: np.ndarray, order: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Batches of at most `size` instances that follow one another by length, in a mixed order; see
    `of_one_length`."""
    ranked = order[np.argsort(lengths[order], kind="stable")]
    cut = [ranked[at : at + size] for at in range(0, len(ranked), size)]
    for i in np.random.default_rng(int(order[0])).permutation(len(cut)):
        yield cut[i]
