"""Layers for images: convolution and pooling.

An image is a value of height x width x channels numbers, channels last: pixel (y, x) has the numbers
`(y * width + x) * channels` and on. What a layer yields is such an image again, of the shape `out`.

>>> from amphw import frontend as fe
>>> conv = fe.Conv2d((28, 28, 1), 10, 5)
>>> pool = fe.MaxPool(conv.out, 2)
>>> conv.out, pool.out
((24, 24, 10), (12, 12, 10))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amphw.frontend.layers import Layer, Shapes, parameter
from amphw.frontend.operands import applied, operand
from amphw.frontend.source import FrontendError
from amphw.ir import functions as f
from amphw.ir.errors import ProgramError
from amphw.ir.primitives.images import Windows
from amphw.ir.program import Value

Image = tuple[int, int, int]
"""Height, width, channels."""


def windows(image: Image, size: int | tuple[int, int], stride: int, padding: int) -> Windows:
    try:
        return Windows(image, size if isinstance(size, tuple) else (size, size), stride, padding)
    except ProgramError as error:
        raise FrontendError(str(error)) from error


class Conv2d(Layer):
    """An image -> for each window of it the `kernels` numbers `activation(window W + b)`.

    size: of the window, one number for both sides or (height, width). activation: a function of each number.
    W [height * width * channels, kernels] starts as Glorot's uniform for one window, b at 0. The windows are
    the rows of one product, so that W's gradient is taken over the windows of many images at once.
    """

    def __init__(
        self,
        image: Image,
        kernels: int,
        size: int | tuple[int, int],
        *,
        stride: int = 1,
        padding: int = 0,
        activation: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.windows, self.kernels, self.activation = (
            windows(image, size, stride, padding),
            kernels,
            activation,
        )

    @property
    def out(self) -> Image:
        return self.windows.down, self.windows.across, self.kernels

    def shapes(self, *widths: int) -> Shapes:
        _same("Conv2d", self.windows, sum(widths))
        return {
            "W": parameter((self.windows.width, self.kernels)),
            "b": parameter((self.kernels,), "zeros"),
        }

    def function(self, p: Any, *operands: Any) -> Value:
        found = f.patches(f.concat(*operands), self.windows)
        space = operands[0].type.space
        y = f.images(f.linear(found, p.W, p.b), self.windows.down, self.windows.across, space)
        result: Value = y if self.activation is None else self.activation(y)
        return result


class MaxPool:
    """An image -> the largest number of each channel in each window.

    size: of the window, one number for both sides or (height, width). Windows are `stride` pixels apart, in
    both directions; without it square ones lie side by side.
    """

    def __init__(self, image: Image, size: int | tuple[int, int], *, stride: int | None = None):
        height, width = size if isinstance(size, tuple) else (size, size)
        if stride is None and height != width:
            raise FrontendError(
                f"windows of {height} x {width} pixels do not lie side by side at one distance; say how far "
                "apart they are: stride=..."
            )
        self.windows = windows(image, size, height if stride is None else stride, 0)

    @property
    def out(self) -> Image:
        return self.windows.down, self.windows.across, self.windows.image[2]

    def function(self, x: Value) -> Value:
        """On the values of a row."""
        pixels = f.split(f.patches(x, self.windows), self.windows.size[0] * self.windows.size[1])
        while len(pixels) > 1:
            odd = pixels[len(pixels) & ~1 :]
            pixels = [f.maximum(a, b) for a, b in zip(pixels[::2], pixels[1::2], strict=False)] + odd
        return f.images(pixels[0], self.windows.down, self.windows.across, x.type.space)

    def __call__(self, x: Any) -> Any:
        x = operand(x, "MaxPool")
        _same("MaxPool", self.windows, x.width)
        return applied("pool", self.function, x)


def _same(layer: str, windows: Windows, width: int) -> None:
    if width != windows.columns:
        image = " x ".join(map(str, windows.image))
        raise FrontendError(f"{layer} is for images of {image} = {windows.columns} numbers, got {width}")
