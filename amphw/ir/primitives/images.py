"""Primitives between an image in one row and its windows in rows of their own.

An image of height x width x channels is a row of columns, channels last: pixel (y, x) has the columns
`(y * width + x) * channels` and on. So a row of a window is a run of columns, and the windows' results, one
behind the other, are an image again. `patches` (im2col) and `unpatch` are each other's transpose, and so each
other's derivative; with windows of one pixel they take an image apart into its pixels and put it together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from amphw.ir.errors import ProgramError
from amphw.ir.primitives.base import PRIMITIVES, Array, Attrs, Primitive, RowContext, Shapes, ValueType, same


@dataclass(frozen=True)
class Windows:
    """Where a window of `size` (height, width) comes to lie in an image (height, width, channels).

    It moves by `stride` pixels, from `padding` pixels outside the image on; outside there are zeros.
    """

    image: tuple[int, int, int]
    size: tuple[int, int]
    stride: int = 1
    padding: int = 0

    def __post_init__(self) -> None:
        numbers = (*self.image, *self.size, self.stride, self.padding + 1)
        if min(numbers) < 1 or min(self.down, self.across) < 1 or self.padding >= min(self.size):
            size, image = " x ".join(map(str, self.size)), " x ".join(map(str, self.image))
            raise ProgramError(
                f"windows of {size} pixels, {self.stride} apart, in an image of {image} with {self.padding} "
                "around it: all sizes are 1 or more, the window fits and is larger than the padding"
            )

    @classmethod
    def of(cls, attrs: Attrs) -> Windows:
        return cls(*(attrs[name] for name in ("image", "size", "stride", "padding")))

    @property
    def attrs(self) -> dict[str, Any]:
        return {"image": self.image, "size": self.size, "stride": self.stride, "padding": self.padding}

    @property
    def down(self) -> int:
        """How many windows lie below each other."""
        return (self.image[0] + 2 * self.padding - self.size[0]) // self.stride + 1

    @property
    def across(self) -> int:
        """How many windows lie side by side."""
        return (self.image[1] + 2 * self.padding - self.size[1]) // self.stride + 1

    @property
    def count(self) -> int:
        return self.down * self.across

    @property
    def columns(self) -> int:
        """Of the image's row."""
        return self.image[0] * self.image[1] * self.image[2]

    @property
    def width(self) -> int:
        """Columns of a window's row: its pixels row by row, each with its channels."""
        return self.size[0] * self.size[1] * self.image[2]

    def pixels(self, padded: Array) -> Iterator[tuple[int, int, Array]]:
        """For each pixel of a window: its place, and where it lies for all windows [n, down, across, C]."""
        for y, x in np.ndindex(*self.size):
            rows = slice(y, y + self.stride * (self.down - 1) + 1, self.stride)
            columns = slice(x, x + self.stride * (self.across - 1) + 1, self.stride)
            yield y, x, padded[:, rows, columns]

    def padded(self, n: int, dtype: Any) -> tuple[Array, Array]:
        """Zeros for n images with their padding, and the view of the images in it [n, height, width, C]."""
        height, width, channels = self.image
        p = self.padding
        whole = np.zeros((n, height + 2 * p, width + 2 * p, channels), dtype)
        return whole, whole[:, p : p + height, p : p + width]


def _patches_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    same(attrs, types, shapes)
    windows = Windows.of(attrs)
    if types[0].width != windows.columns:
        image = " x ".join(map(str, windows.image))
        raise ProgramError(f"patches: the operand has width {types[0].width}, the image is {image}")
    return ValueType("float", attrs["space"], windows.width)


def _unpatch_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    same(attrs, types, shapes)
    windows = Windows.of(attrs)
    if types[0].width != windows.width:
        raise ProgramError(f"unpatch: the operand has width {types[0].width}, a window {windows.width}")
    return ValueType("float", attrs["space"], windows.columns)


def _patches(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    w, (x,) = Windows.of(at), a
    whole, inner = w.padded(len(x), x.dtype)
    inner[:] = x.reshape(inner.shape)
    out = np.empty((len(x), w.down, w.across, *w.size, w.image[2]), x.dtype)
    for row, column, found in w.pixels(whole):
        out[:, :, :, row, column] = found
    return out.reshape(len(x) * w.count, w.width)


def _unpatch(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    w, (x,) = Windows.of(at), a
    n = len(x) // w.count
    whole, inner = w.padded(n, x.dtype)
    given = x.reshape(n, w.down, w.across, *w.size, w.image[2])
    for row, column, place in w.pixels(whole):
        place += given[:, :, :, row, column]
    return inner.reshape(n, w.columns)


def _back(at: Attrs) -> Attrs:
    return {**at, "space": at["source"], "source": at["space"]}


NO_WINDOWS = "it does not cut out windows of images"

PRIMITIVES["patches"] = Primitive(
    _patches_infer,
    _patches,
    lambda t, at, a, y, d: [t.emit("unpatch", [d], **_back(at))],
    hardware=NO_WINDOWS,
    flops="moves",
    view=True,
)
PRIMITIVES["unpatch"] = Primitive(
    _unpatch_infer,
    _unpatch,
    lambda t, at, a, y, d: [t.emit("patches", [d], **_back(at))],
    hardware=NO_WINDOWS,
    flops="reads",
    view=True,
)
