"""What the layers of a model are called: as the attributes and variables that hold them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import FunctionType
from typing import Any, TypeGuard

from amphw.frontend.layer_functions import LayerFunction
from amphw.frontend.layers import Layer


def layer_names(model: object) -> dict[Layer, str]:
    """The layers that a model holds in its attributes, lists and dicts, by their path: `encoder_cell`."""
    names: dict[Layer, str] = {}
    seen: set[int] = set()

    def visit(value: object, path: str) -> None:
        if isinstance(value, LayerFunction):
            value = value.layer
        if isinstance(value, Layer):
            names.setdefault(value, path or type(value).__name__.lower())
        elif id(value) not in seen and not isinstance(value, type):
            seen.add(id(value))
            parts: Any = ()
            if isinstance(value, dict):
                parts = value.items()
            elif isinstance(value, list | tuple):
                parts = enumerate(value)
            elif isinstance(value, FunctionType):
                parts = inspect.getclosurevars(value)
                parts = (*parts.nonlocals.items(), *parts.globals.items())
                known = Layer | LayerFunction | FunctionType | list | dict | tuple
                parts = [(k, v) for k, v in parts if isinstance(v, known) or _is_whole(v)]
            elif _is_whole(value):
                parts = value.parts.items()
            elif hasattr(value, "__dict__"):
                parts = vars(value).items()
            for key, part in parts:
                # A function within a function is a part of it, whatever it is called.
                inner = "" if isinstance(part, FunctionType) else str(key)
                visit(part, "_".join(x for x in (path, inner) if x))

    visit(model, "")
    return names


def _is_whole(value: object) -> TypeGuard[Any]:
    """Whether it is what several layers are the parts of: an imported program."""
    return hasattr(type(value), "parts") and callable(value)


def whole_names(names: Mapping[Layer, str]) -> dict[Any, str]:
    """What layers are the parts of, by the paths of these."""
    found: dict[Any, str] = {}
    for layer, name in names.items():
        whole = getattr(layer, "part_of", None)
        if whole is not None:
            part = next(k for k, v in whole.parts.items() if v is layer)
            found.setdefault(whole, name.removesuffix(part).rstrip("_") or "program")
    return found
