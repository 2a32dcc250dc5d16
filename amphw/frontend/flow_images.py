"""Convolutions and pooling within a row of a program: images there have their channels first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amphw.frontend.flow import Step
from amphw.frontend.torch_ops import Operations, Refused, Weight
from amphw.ir import functions as f
from amphw.ir.errors import ProgramError
from amphw.ir.primitives.images import Windows
from amphw.ir.program import ParamRef, Value


class Images(Operations):
    """Operations on images [channels, height, width], and what convolutions multiply with."""

    axes: dict[str, tuple[int, ...]]

    @property
    def layouts(self) -> dict[str, tuple[int, ...]]:
        """Of parameters that are stored with other dimensions first the order of those that they had."""
        return self.axes | {name: (1, 0) for name, turned in self.turned.items() if turned}

    def compute(self, step: Step) -> Any:
        raise NotImplementedError

    def kernels(self, step: Step, axes: tuple[int, ...]) -> ParamRef:
        """The windows of a convolution as the rows of a matrix [window, kernels]."""
        weight = self.compute(step)
        if not isinstance(weight, Weight):
            raise Refused("the kernels of a convolution must be a parameter")
        if self.axes.setdefault(weight.name, axes) != axes:
            raise Refused(f"the parameter '{weight.name}' is used by two kinds of convolution")
        values = weight.values.transpose(axes)
        return self._parameter(weight, values.reshape(-1, values.shape[-1]))

    def convolved(self, found: Value, weight: ParamRef, bias: Step | None) -> Value:
        y = found @ weight
        if bias is None:
            return y
        b = self.compute(bias)
        return y + f.row_param(self._parameter(b, b.values.reshape(-1)), y.type.space)

    def row_convolved(self, step: Step, found: Step, weight: Step, bias: Step | None) -> Value:
        """Windows along positions, the earliest first."""
        return self.convolved(self.row(found), self.kernels(weight, (2, 1, 0)), bias)

    def row_conv2d(
        self,
        step: Step,
        x: Step,
        weight: Step,
        bias: Step | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Value:
        if groups != 1 or _one(dilation) != 1:
            raise Refused("with groups or dilation has no counterpart here; without them it has")
        kernels, _, *size = weight.shape or ()
        windows = _windows(x, size, _one(stride), _one(padding))
        height, width, channels = windows.image
        found = f.patches(_channels_last(self.row(x), height, width, channels), windows)
        y = self.convolved(found, self.kernels(weight, (2, 3, 1, 0)), bias)
        return _channels_first([f.columns(y, k, 1) for k in range(_int(kernels))], windows)

    def _pooled(self, x: Step, size: Any, stride: Any, of: Callable[[Value], Value]) -> Value:
        sides = [size, size] if isinstance(size, int) else list(size)
        sides = sides * 2 if len(sides) == 1 else sides
        windows = _windows(x, sides, _one(stride or sides), 0)
        height, width, channels = windows.image
        one = Windows((height, width, 1), windows.size, windows.stride)
        return _channels_first([of(f.patches(c, one)) for c in f.split(self.row(x), channels)], one)

    def row_max_pool2d(
        self, step: Step, x: Step, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, *_: Any
    ) -> Value:
        if _one(padding) or _one(dilation) != 1 or any(_):
            raise Refused("with padding, dilation or ceil_mode has no counterpart here; without them it has")
        return self._pooled(x, size, stride, f.largest)

    def row_avg_pool2d(
        self, step: Step, x: Step, size: Any, stride: Any = (), padding: Any = 0, *_: Any
    ) -> Value:
        if _one(padding) or any(_):
            raise Refused("with padding or ceil_mode has no counterpart here; without them it has")
        return self._pooled(x, size, stride, lambda v: f.sum_cols(v) * (1.0 / v.width))


def _windows(x: Step, size: Sequence[Any], stride: int, padding: int) -> Windows:
    shape = [d for d in x.shape or () if isinstance(d, int)]
    if len(shape) == 4 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) != 3:
        raise Refused(f"images of shape {list(x.shape or ())}: a batch is 1 or a length that differs")
    channels, height, width = shape
    try:
        return Windows((height, width, channels), (_int(size[0]), _int(size[1])), stride, padding)
    except ProgramError as error:
        raise Refused(str(error)) from error


def _channels_last(x: Value, height: int, width: int, channels: int) -> Value:
    if channels == 1:
        return x
    pixels = Windows((height, width, 1), (1, 1))
    parts = [f.patches(c, pixels) for c in f.split(x, channels)]
    return f.images(f.concat(*parts), height, width, x.type.space)


def _channels_first(channels: Sequence[Value], windows: Windows) -> Value:
    """channels: one number for each window."""
    return f.concat(*(f.images(c, windows.down, windows.across) for c in channels))


def _one(x: Any) -> int:
    """A number for both sides."""
    sides = [x] if isinstance(x, int) else list(x)
    if isinstance(x, str) or len(set(sides)) != 1:
        raise Refused(f"{x!r}, another number for each side; one for both is known")
    return _int(sides[0])


def _int(x: Any) -> int:
    assert isinstance(x, int), x
    return x
