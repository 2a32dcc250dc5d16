"""MNIST: 28x28 grey images of handwritten digits, 60,000 to train on and 10,000 to test on.

The files are in idx format: a big-endian header (two zero bytes, the element type, the number of
dimensions, then each dimension as 32 bits) followed by the elements in C order.
"""

from __future__ import annotations

import struct
from typing import Literal

import numpy as np
import numpy.typing as npt

from amphw.data.cache import DataError, DataFile, read_data

PIXELS = 784
CLASSES = 10

_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_PREFIX = {"train": "train", "test": "t10k"}
_UINT8 = 8  # the idx code of unsigned bytes

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]


def mnist_files(split: Literal["train", "test"]) -> tuple[DataFile, DataFile]:
    """The image file and the label file of a split."""
    if split not in _PREFIX:
        raise ValueError(f"MNIST has no split {split!r}; it has 'train' and 'test'")
    names = (f"{_PREFIX[split]}-images-idx3-ubyte", f"{_PREFIX[split]}-labels-idx1-ubyte")
    images, labels = (DataFile(f"mnist/{n}", f"{_URL}{n}.gz", f"sha256:{_SHA256[n]}") for n in names)
    return images, labels


def load_mnist(split: Literal["train", "test"]) -> tuple[Images, Labels]:
    """Images float32 [n, 784] in 0..1 (0 is background), row by row, and labels int32 [n] in 0..9.

    n is 60,000 for "train" and 10,000 for "test". Raises DataError if the files cannot be had or are damaged.
    """
    image_file, label_file = mnist_files(split)
    pixels = parse_idx(read_data(image_file), dimensions=3, where=image_file.name)
    labels = parse_idx(read_data(label_file), dimensions=1, where=label_file.name)
    return _combine(pixels, labels, image_file.name, label_file.name)


def parse_idx(data: bytes, dimensions: int, where: str) -> npt.NDArray[np.uint8]:
    """The array in an idx file of unsigned bytes with the given number of dimensions.

    `where` names the file in errors. Raises DataError for another kind of file or a wrong length.
    """
    header = 4 + 4 * dimensions
    if len(data) < header:
        raise DataError(
            f"{where} is truncated: an idx file of {dimensions} dimensions has a header of {header} bytes, "
            f"this one has {len(data)} bytes in all."
        )
    magic = struct.pack(">HBB", 0, _UINT8, dimensions)
    if data[:4] != magic:
        raise DataError(
            f"{where} is not an idx file of unsigned bytes in {dimensions} dimensions: "
            f"it begins with {data[:4].hex()}, expected {magic.hex()}."
        )
    shape = struct.unpack(f">{dimensions}I", data[4:header])
    expected = header + int(np.prod(shape, dtype=np.int64))
    if len(data) != expected:
        what = "is truncated" if len(data) < expected else "is too long"
        raise DataError(
            f"{where} {what}: its header announces shape {shape}, which makes {expected} bytes; "
            f"it has {len(data)}."
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def _combine(
    pixels: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8], image_name: str, label_name: str
) -> tuple[Images, Labels]:
    if pixels.shape[1:] != (28, 28):
        raise DataError(f"{image_name} holds images of {pixels.shape[1:]} pixels, expected (28, 28).")
    if len(pixels) != len(labels):
        raise DataError(
            f"{image_name} holds {len(pixels)} images, but {label_name} holds {len(labels)} labels."
        )
    if labels.size and labels.max() >= CLASSES:
        raise DataError(f"{label_name} holds the label {labels.max()}, expected 0 to {CLASSES - 1}.")
    images = pixels.reshape(len(pixels), PIXELS).astype(np.float32) / np.float32(255)
    return images, labels.astype(np.int32)


# The seven strokes of a digit on a pocket calculator, as (top, bottom, left, right) in pixels of the 28x28
# image.
_STROKES = {
    "a": (4, 7, 9, 19),
    "b": (5, 14, 17, 20),
    "c": (14, 23, 17, 20),
    "d": (21, 24, 9, 19),
    "e": (14, 23, 8, 11),
    "f": (5, 14, 8, 11),
    "g": (12, 15, 9, 19),
}
_DIGIT_STROKES = ("abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg")
_SHIFT = 1  # pixels that a sample is moved by, at most, along each axis
_NOISE = 0.1  # standard deviation, of pixels in 0..1


def sample_mnist(n: int, seed: int) -> tuple[Images, Labels]:
    """Generated digit-like samples, for use without the data: images float32 [n, 784], labels int32 [n].

    **This is not MNIST** and accuracies on it mean nothing beyond it. Each sample is a seven-stroke digit
    (as on a pocket calculator), moved by up to a pixel, its ink scaled by 0.6 to 1, with Gaussian noise
    added and clipped to 0..1. The classes are separable: least squares on 1,000 samples gets over 98% of
    others right. Labels are uniform. The same `n` and `seed` give the same samples.
    """
    if n < 0:
        raise ValueError(f"the number of samples must be 0 or more, got {n}")
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, n).astype(np.int32)
    shifts = rng.integers(-_SHIFT, _SHIFT + 1, (n, 2))
    ink = rng.uniform(0.6, 1.0, n).astype(np.float32)
    rows = (np.arange(28) - shifts[:, :1])[:, :, None] % 28
    columns = (np.arange(28) - shifts[:, 1:])[:, None, :] % 28
    images = _digit_templates()[labels[:, None, None], rows, columns] * ink[:, None, None]
    images += _NOISE * rng.standard_normal(images.shape, np.float32)
    return np.clip(images, 0, 1).reshape(n, PIXELS), labels


def _digit_templates() -> npt.NDArray[np.float32]:
    """One image [28, 28] for each digit, in 0..1; shape [10, 28, 28]."""
    templates = np.zeros((CLASSES, 28, 28), np.float32)
    for digit, strokes in enumerate(_DIGIT_STROKES):
        for stroke in strokes:
            top, bottom, left, right = _STROKES[stroke]
            templates[digit, top:bottom, left:right] = 1
    return templates
