"""What models of MNIST share: their data, and how a line of text reads as an image."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np

from amphw.data.mnist import PIXELS, load_mnist, sample_mnist
from amphw.ir.device import Report
from amphw.ir.instance import Instance
from amphw.models.base import Instances, Model, ModelError, limited
from amphw.models.classify import Unlabelled, explained

_SAMPLES = (6000, 1000)  # generated images to train and to validate on
_MEAN, _DEVIATION = 0.1307, 0.3081  # of the pixels of MNIST's training set

Set = tuple[np.ndarray, np.ndarray]
"""Images float32 [n, 784] in 0..1 and labels int32 [n]."""


class DigitsConfig(Protocol):
    """What such a model's configuration has among others: images in an instance, generated ones or not."""

    @property
    def batch(self) -> int: ...
    @property
    def sample(self) -> bool: ...


C = TypeVar("C", bound=DigitsConfig)


class Digits(Model[C]):
    """A model of MNIST; what throughput counts are images.

    Its instances have the attribute batch, the data array image [batch, 784], normalised, and the table label
    [batch].
    """

    counted = "images"

    def prepare(self, cfg: C, seed: int) -> None:
        for split in (0, 1):
            _load(split, cfg.sample, seed)

    def training(self, cfg: C, seed: int, epoch: int, limit: int = 0) -> Instances:
        """60,000 images (6,000 generated ones), shuffled in every epoch."""
        images, labels = _load(0, cfg.sample, seed)
        order = np.random.default_rng([seed, epoch]).permutation(limited(len(labels), limit))
        return _instances(images, labels, order, cfg.batch)

    def validation(self, cfg: C, seed: int, limit: int = 0) -> Instances:
        """The 10,000 test images (1,000 generated ones)."""
        images, labels = _load(1, cfg.sample, seed)
        return _instances(images, labels, np.arange(limited(len(labels), limit)), cfg.batch)

    def parse(self, cfg: C, text: str) -> Instance:
        """`17`, the number of a validation image (with `sample`, of seed 0), or 784 pixels in 0..1."""
        words = text.replace(",", " ").split()
        try:
            numbers = [float(word) for word in words]
        except ValueError:
            raise ModelError(f"'{text.strip()[:40]}' holds more than numbers; {_EXPECTED}") from None
        if len(numbers) == 1:
            images, labels = _load(1, cfg.sample, 0)
            index = int(numbers[0])
            if index != numbers[0] or not 0 <= index < len(labels):
                raise ModelError(
                    f"there is no validation image {words[0]}; {_EXPECTED}, 0 to {len(labels) - 1}"
                )
            return _instance(images[index : index + 1], labels[index : index + 1])
        if len(numbers) != PIXELS:
            raise ModelError(f"the line has {len(numbers)} numbers; {_EXPECTED}")
        image = np.array(numbers, np.float32)[None]
        if not (np.isfinite(image).all() and 0 <= image.min() and image.max() <= 1):
            raise ModelError(f"a pixel lies outside 0..1; {_EXPECTED}")
        return Unlabelled({"batch": 1}, {"label": np.zeros(1, np.int32)}, {"image": normalised(image)})

    def explain(self, cfg: C, instance: Instance, report: Report) -> dict[str, Any]:
        """The predicted digit of the first image; of a validation image also the true one."""
        return explained(instance, report, self.loss_node)

    def size(self, instance: Instance) -> int:
        return instance.attrs["batch"]


_EXPECTED = f"expected the number of a validation image, or {PIXELS} pixels in 0..1, row by row"


@lru_cache(maxsize=4)
def _load(split: int, sample: bool, seed: int) -> Set:
    """The training set (split 0) or the validation set (1); generated ones differ by seed and split."""
    if sample:
        return sample_mnist(_SAMPLES[split], 2 * seed + split)
    return load_mnist("test" if split else "train")


def _instances(images: np.ndarray, labels: np.ndarray, order: np.ndarray, batch: int) -> Instances:
    def build(i: int) -> Instance:
        rows = order[i * batch : (i + 1) * batch]
        return _instance(images[rows], labels[rows])

    return Instances(-(-len(order) // batch), build, len(order))


def _instance(images: np.ndarray, labels: np.ndarray) -> Instance:
    return Instance({"batch": len(labels)}, {"label": labels}, {"image": normalised(images)})


def normalised(images: np.ndarray) -> np.ndarray:
    """Pixels in 0..1 -> zero mean and unit variance over the training set, with which SGD at 0.1 is fast."""
    return (images - np.float32(_MEAN)) * np.float32(1.0 / _DEVIATION)
