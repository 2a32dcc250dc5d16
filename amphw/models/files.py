"""A model in a file of the user's own."""

from __future__ import annotations

import inspect
import sys
import traceback
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from amphw.ir.errors import AmphwError
from amphw.models.base import Model, ModelError

_OURS = Path(__file__).resolve().parent.parent
_PREFIX = "amphw_model_"
"""How modules of users' files are called; by it their frames are known."""


@cache
def model_in(path: str, name: str = "") -> Model[Any]:
    """The model of that class in a Python file, or its only one.

    ModelError shows the user's own lines where the file raises or does not parse.
    """
    file = Path(path)
    if not file.is_file():
        raise ModelError(f"there is no file {path}")
    spec = spec_from_file_location(f"{_PREFIX}{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    sys.path.insert(0, str(file.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except AmphwError:
        raise  # says its line itself
    except Exception as error:
        raise ModelError(_in_file(error, spec.name)) from error
    finally:
        sys.path.pop(0)
    classes = {n: c for n, c in vars(module).items() if inspect.isclass(c) and c.__module__ == spec.name}
    models = {n: c for n, c in classes.items() if issubclass(c, Model)}
    lacking = {n: _lacks(c) for n, c in models.items()}
    found = {n: c for n, c in models.items() if not lacking[n]}
    # A class that is no model yet may stand beside one that is; it is told of where it was meant.
    meant = name if name in models else "" if found else next(iter(models), "")
    if meant and lacking[meant]:
        raise ModelError(f"{path}: the model {meant} lacks {', '.join(lacking[meant])}")
    if name and name not in found:
        raise ModelError(f"{path} has no model {name!r} (it has {', '.join(found) or 'none'})")
    if not name and len(found) != 1:
        has = f"several models: {', '.join(found)}; write {path}:NAME" if found else "no subclass of Model"
        raise ModelError(f"{path} has {has}")
    made: Model[Any] = found[name or next(iter(found))]()
    return made


def _in_file(error: Exception, module: str) -> str:
    """What went wrong when the user's file was loaded."""
    sys.modules.pop(module, None)
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        shown = f"{(error.text or '').strip()}\n" if error.text else ""
        where = f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
        return f"the model's file cannot be read\n{shown}{where}"
    return users_error(error) or f"the model's file cannot be loaded: {_said(error)}"


def users_error(error: BaseException) -> str | None:
    """What a model's file raised: its frames alone, then `file:line: message`; None of any other error.

    Frames of a library that the file called are shown after its own, those of amphw are not.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    modules = [frame.f_globals.get("__name__", "") for frame, _ in frames]
    theirs = [i for i, name in enumerate(modules) if name.startswith(_PREFIX)]
    if not theirs:
        return None
    shown = [(f, line) for f, line in frames[theirs[0] :] if _is_users(f.f_code.co_filename)]
    frame, line = frames[theirs[-1]]
    return (
        "the model's file raises an error\n"
        + "".join(traceback.StackSummary.extract(shown).format())
        + f"{frame.f_code.co_filename}:{line}: {_said(error)}"
    )


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _is_users(file: str) -> bool:
    """Neither amphw's own code nor Python's machinery of imports."""
    return not file.startswith("<frozen") and not Path(file).is_relative_to(_OURS)


def _lacks(model: type[Model[Any]]) -> list[str]:
    """What a model has to define and this class does not."""
    named = [n for n in ("name", "summary", "config") if not hasattr(model, n)]
    return named + sorted(getattr(model, "__abstractmethods__", ()))
