"""The models, by name. Adding one: a file with a `Model`, and its line here."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from amphw.models.base import Model, ModelError
from amphw.models.files import model_in

_CLASSES = {
    "list-reduction": "list_reduction.ListReductionRNN",
    "mnist": "mnist.MnistMLP",
    "ako-mnist": "ako_mnist.AkoMnist",
    "tree-lstm": "tree_lstm.TreeLSTM",
    "ggnn": "ggnn.GGNN",
    "babi15": "babi15.Babi15",
    "bilstm": "bilstm.BiLSTM",
    "language-model": "language_model.LanguageModel",
    "translation": "translation.Translation",
    "transformer": "transformer.Transformer",
}
"""By name, where in this package the class is. Nobody imports more of them than are asked for."""


@cache
def _made(name: str) -> Model[Any]:
    module, _, of = _CLASSES[name].partition(".")
    found: Model[Any] = getattr(importlib.import_module(f"amphw.models.{module}"), of)()
    return found


class _Models(Mapping[str, Model[Any]]):
    """Imports a model when it is asked for."""

    def __getitem__(self, name: str) -> Model[Any]:
        return _made(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)

    def __contains__(self, name: object) -> bool:
        return name in _CLASSES


MODELS: Mapping[str, Model[Any]] = _Models()


def get_model(name: str) -> Model[Any]:
    """The model of that name, or the one in a file `mine.py` (`mine.py:Name`, if there are several).

    Raises ModelError listing the names, the nearest one first.
    """
    if name in MODELS:
        return MODELS[name]
    path, _, wanted = name.partition(":")
    if path.endswith(".py"):
        return model_in(path, wanted)
    near = difflib.get_close_matches(name, list(MODELS), n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ModelError(f"there is no model {name!r}.{hint} Models: {', '.join(MODELS)}, or a file of yours.")


__all__ = ["MODELS", "Model", "ModelError", "get_model"]
