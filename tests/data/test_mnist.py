"""The idx parser on small files written here, the real files where they are at hand, generated samples."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest

from amphw.data import mnist
from amphw.data.cache import DataError, is_local
from amphw.data.mnist import load_mnist, mnist_files, parse_idx, sample_mnist


def idx(*shape: int, type_code: int = 8, elements: bytes | None = None) -> bytes:
    """An idx file of the given shape, holding 0, 1, 2, ... unless told."""
    count = int(np.prod(shape))
    body = bytes(i % 256 for i in range(count)) if elements is None else elements
    return struct.pack(f">HBB{len(shape)}I", 0, type_code, len(shape), *shape) + body


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a pair of files in the place of MNIST's test split, with their checksums."""
    monkeypatch.setenv("AMPHW_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()

    def put(images: bytes, labels: bytes) -> None:
        for name, content in (("t10k-images-idx3-ubyte", images), ("t10k-labels-idx1-ubyte", labels)):
            (tmp_path / "mnist" / name).write_bytes(content)
            monkeypatch.setitem(mnist._SHA256, name, hashlib.sha256(content).hexdigest())

    return put


def test_parse_idx():
    array = parse_idx(idx(2, 3, 4), dimensions=3, where="x")
    assert array.dtype == np.uint8
    np.testing.assert_array_equal(array, np.arange(24).reshape(2, 3, 4))
    assert parse_idx(idx(0), dimensions=1, where="x").shape == (0,)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            idx(5)[:7],
            "x is truncated: an idx file of 1 dimensions has a header of 8 bytes, "
            "this one has 7 bytes in all.",
        ),
        (
            idx(2, 2),
            "x is not an idx file of unsigned bytes in 1 dimensions: "
            "it begins with 00000802, expected 00000801.",
        ),
        (
            idx(5, type_code=13),
            "x is not an idx file of unsigned bytes in 1 dimensions: "
            "it begins with 00000d01, expected 00000801.",
        ),
        (
            idx(5)[:-1],
            "x is truncated: its header announces shape (5,), which makes 13 bytes; it has 12.",
        ),
        (
            idx(5) + b"\0\0",
            "x is too long: its header announces shape (5,), which makes 13 bytes; it has 15.",
        ),
    ],
)
def test_parse_idx_refuses(data, message):
    with pytest.raises(DataError) as caught:
        parse_idx(data, dimensions=1, where="x")
    assert str(caught.value) == message


def test_load_scales_and_flattens(install):
    pixels = bytes([0, 255, 51]) + bytes(784 - 3) + bytes([255]) * 784
    install(idx(2, 28, 28, elements=pixels), idx(2, elements=b"\x07\x00"))
    images, labels = load_mnist("test")
    assert (images.shape, images.dtype, labels.dtype) == ((2, 784), np.float32, np.int32)
    np.testing.assert_array_equal(images[0, :4], np.float32([0, 1, 0.2, 0]))
    assert images[1].min() == 1
    np.testing.assert_array_equal(labels, [7, 0])


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (
            idx(3, 28, 28),
            idx(2),
            "mnist/t10k-images-idx3-ubyte holds 3 images, but mnist/t10k-labels-idx1-ubyte holds 2 labels.",
        ),
        (
            idx(2, 28, 27),
            idx(2),
            "mnist/t10k-images-idx3-ubyte holds images of (28, 27) pixels, expected (28, 28).",
        ),
        (idx(11, 28, 28), idx(11), "mnist/t10k-labels-idx1-ubyte holds the label 10, expected 0 to 9."),
    ],
)
def test_load_refuses(install, images, labels, message):
    install(images, labels)
    with pytest.raises(DataError) as caught:
        load_mnist("test")
    assert str(caught.value) == message


def test_unknown_split():
    with pytest.raises(ValueError, match=r"^MNIST has no split 'valid'; it has 'train' and 'test'$"):
        mnist_files("valid")


# The numbers of each digit, as known for MNIST.
DIGITS = {
    "train": [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    "test": [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
}
BEGINS = {"train": [5, 0, 4, 1, 9, 2], "test": [7, 2, 1, 0, 4, 1]}


@pytest.mark.parametrize("split", ["train", "test"])
def test_real_files(split):
    if not all(is_local(file) for file in mnist_files(split)):
        pytest.skip("MNIST is not at hand: set AMPHW_DATA or download it once")
    images, labels = load_mnist(split)
    assert images.shape == (len(labels), 784)
    assert np.bincount(labels).tolist() == DIGITS[split]
    assert labels[:6].tolist() == BEGINS[split]
    assert (images.min(), images.max()) == (0, 1)
    assert abs(images.mean() - 0.131) < 0.002


def test_sample_is_separable():
    """Least squares on 1,000 samples classifies other samples, as the docstring says."""
    images, labels = sample_mnist(1000, seed=0)
    inputs = np.c_[images, np.ones(1000)].astype(np.float64)
    weights = np.linalg.solve(inputs.T @ inputs + 10 * np.eye(785), inputs.T @ np.eye(10)[labels])
    others, expected = sample_mnist(1000, seed=1)
    found = (np.c_[others, np.ones(1000)] @ weights).argmax(axis=1)
    assert (found == expected).mean() > 0.98


def test_sample_is_a_function_of_the_seed():
    images, labels = sample_mnist(100, seed=3)
    assert (images.shape, images.dtype, labels.dtype) == ((100, 784), np.float32, np.int32)
    assert (images.min(), images.max()) == (0, 1)
    assert set(labels.tolist()) == set(range(10))
    again, labels_again = sample_mnist(100, seed=3)
    np.testing.assert_array_equal(images, again)
    np.testing.assert_array_equal(labels, labels_again)
    assert not np.array_equal(sample_mnist(100, seed=4)[0], images)


def test_sample_sizes():
    assert sample_mnist(0, seed=0)[0].shape == (0, 784)
    with pytest.raises(ValueError, match=r"^the number of samples must be 0 or more, got -1$"):
        sample_mnist(-1, seed=0)
