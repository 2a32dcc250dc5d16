"""Further functions of a layer's parameters, and what is said where parameters cannot be shared."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np

from amphw.frontend.remedies import unknown
from amphw.frontend.source import FrontendError, UnknownName
from amphw.ir.program import ParamSpec, Value

if TYPE_CHECKING:
    from amphw.frontend.layers import Layer

_SHARE = (
    "only a layer's own functions read its parameters, so to share them give one layer several functions, "
    "`fe.Layer(shapes={...}, encode=lambda p, x: x @ p.W, decode=lambda p, h: h @ p.W.T)`; an Embedding has "
    "`embed.attend(h)`, which is h @ E.T"
)
_LOOKS_LIKE_ONE = frozenset("E W b T table weight weights bias kernel embedding parameters params".split())


class LayerFunction:
    """One function of a layer that has several: called with values and Integers, as a layer is."""

    def __init__(self, layer: Layer, name: str, function: Callable[..., Any]) -> None:
        self.layer, self.name, self._function = layer, name, function
        self.__doc__ = function.__doc__

    def __call__(self, *operands: Any) -> Any:
        try:
            inspect.signature(self._function).bind(None, *operands)
        except TypeError as error:
            raise FrontendError(
                f"{self!r} is called with {len(operands)} operands, which do not fit its function "
                f"`(p, ...)`: {error}"
            ) from None
        return self.layer.apply(self.name, self._function, *operands)

    def __repr__(self) -> str:
        return f"{type(self.layer).__name__}.{self.name}"


class layer_function:
    """Makes a method of a `Layer` one more function of its parameters.

    The method is `(self, p, *values, *integers)`, as `Layer.function` is; it is called without `p`, with
    values and Integers of the model. Parameters are those of `shapes`, which must give the same ones whatever
    the widths of the operands are; a function need not read all of them.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._name, self.__doc__ = function, function.__name__, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, layer: None, owner: type) -> layer_function: ...

    @overload
    def __get__(self, layer: Layer, owner: type) -> LayerFunction: ...

    def __get__(self, layer: Layer | None, owner: type) -> layer_function | LayerFunction:
        if layer is None:
            return self
        return LayerFunction(layer, self._name, self._function.__get__(layer))


def add_functions(layer: Layer, functions: Mapping[str, object], shapes: object) -> None:
    """Set functions, by name, as attributes of a layer; FrontendError where one cannot be."""
    for name, function in functions.items():
        if not callable(function) or isinstance(function, type | LayerFunction) or _is_layer(function):
            raise FrontendError(
                f"{name}={function!r} is no function; a layer is made of functions `lambda p, x: ...` of its "
                f"parameters and values, and has no other settings than `name`; {_SHARE}"
            )
        if hasattr(type(layer), name):
            raise FrontendError(f"a function of a layer is not called '{name}', which every layer has")
        setattr(layer, name, LayerFunction(layer, name, function))
    if functions and callable(shapes):
        raise FrontendError(
            "the functions of a layer have operands of different widths, so the shapes of its parameters are "
            'a dict, such as {"W": (16, 8)}, and no function of the widths'
        )


def functions_of(layer: Layer) -> list[str]:
    """Names of the functions that a layer has beside what calling it computes."""
    own = [name for name, f in vars(layer).items() if isinstance(f, LayerFunction)]
    return own + [name for name in dir(type(layer)) if isinstance(getattr(type(layer), name), layer_function)]


def _is_layer(x: object) -> bool:
    from amphw.frontend.layers import Layer  # which imports this module

    return isinstance(x, Layer)


def no_call(layer: Layer) -> Exception:
    """The error of a layer that is called and has no function for it."""
    if own := functions_of(layer):
        names = ", ".join(f"`{name}`" for name in own)
        return FrontendError(f"this layer is not called itself; its functions are {names}")
    return NotImplementedError("a layer defines `function`")


def no_settings(layer: Layer, settings: Mapping[str, object]) -> None:
    """FrontendError where a layer is given a setting that it does not have."""
    for name in settings:
        share = f"; {_SHARE}" if name in _LOOKS_LIKE_ONE else ""
        raise FrontendError(f"{type(layer).__name__} has no setting '{name}'{share}")


def no_attribute(layer: Layer, name: str, parameters: Mapping[str, object]) -> NoReturn:
    """The error of a name that a layer does not have, which may be that of a parameter."""
    if name in parameters or name in _LOOKS_LIKE_ONE:
        raise UnknownName(
            f"the parameters of a layer ({type(layer).__name__}) are not its attributes, got '{name}'; "
            f"{_SHARE}. What they have learnt is in `run.parameters`"
        )
    raise unknown(f"a layer ({type(layer).__name__})", name, [n for n in dir(layer) if not n.startswith("_")])


def no_operand(x: object) -> str:
    """What to write instead of calling a layer with this."""
    if isinstance(x, tuple | list):
        return "; `concat` puts several values side by side"
    if isinstance(x, Value):
        return "; the functions of a layer do not call layers, so call both in the model"
    if callable(x) or isinstance(x, ParamSpec):
        return f"; {_SHARE}"
    return ""


def start(init: object) -> str | np.ndarray:
    """What a parameter starts as, or at; FrontendError where it is neither a name nor values."""
    if isinstance(init, str | np.ndarray):
        return init
    raise FrontendError(
        "a parameter starts as glorot, zeros, uniform:A, normal:S or identity, or at an array, "
        f"got {init!r}; {_SHARE}"
    )
