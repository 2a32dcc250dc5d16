"""What the layers of a model are called: as the attributes and variables that hold them."""

from __future__ import annotations

import dis
from collections.abc import Mapping
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeGuard

import numpy as np

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
                parts = [(k, v) for k, v in enumerate(value) if not isinstance(v, _PLAIN)]
            elif isinstance(value, FunctionType):
                parts = [(k, v) for k, v in _read_by(value) if isinstance(v, _HOLD_LAYERS) or _is_whole(v)]
            elif isinstance(value, MethodType):
                parts = (("", value.__self__), ("", value.__func__))
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


_PLAIN = int | float | str | bytes | np.ndarray | np.generic
_HOLD_LAYERS = Layer | LayerFunction | FunctionType | list | dict | tuple


def _read_by(function: FunctionType) -> list[tuple[str, object]]:
    """What a function and the functions within it read from around them, by name: variables, and layers that
    are attributes of variables."""
    codes, variables, attributes = [function.__code__], dict[str, None](), dict[str, None]()
    for code in codes:
        codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                variables[step.argval] = None
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                attributes[step.argval] = None
    closed = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    around = {name: cell.cell_contents for name, cell in closed if _is_filled(cell)}
    around |= {name: function.__globals__[name] for name in variables if name in function.__globals__}
    found = list(around.items())
    for name, value in around.items():
        own = _attributes(value)
        if isinstance(value, _HOLD_LAYERS) or _is_whole(value) or not own:
            continue
        # A module is a namespace, of which a layer has its own name; another object is what it is a part of.
        path = "" if isinstance(value, ModuleType) else f"{name}_"
        held = ((k, own.get(k)) for k in attributes)
        found += [(f"{path}{k}", x) for k, x in held if isinstance(x, Layer | LayerFunction)]
    return found


def _attributes(value: object) -> Mapping[str, object]:
    """Those that an object holds itself; what it makes when it is asked is not asked for."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except Exception:  # whatever a stand-in for something else may raise
        return {}
    return found if isinstance(found, dict) else {}


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # of a variable that has no value yet it raises
    except ValueError:
        return False
    return True


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
