"""The models, by name. Adding one: a file with a `Model`, and its line here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from amphw.models.ako_mnist import AkoMnist
from amphw.models.babi15 import Babi15
from amphw.models.base import Model, ModelError
from amphw.models.bilstm import BiLSTM
from amphw.models.files import model_in
from amphw.models.ggnn import GGNN
from amphw.models.language_model import LanguageModel
from amphw.models.list_reduction import ListReductionRNN
from amphw.models.mnist import MnistMLP
from amphw.models.transformer import Transformer
from amphw.models.translation import Translation
from amphw.models.tree_lstm import TreeLSTM

_ALL = (
    ListReductionRNN(),
    MnistMLP(),
    AkoMnist(),
    TreeLSTM(),
    GGNN(),
    Babi15(),
    BiLSTM(),
    LanguageModel(),
    Translation(),
    Transformer(),
)
MODELS: Mapping[str, Model[Any]] = {m.name: m for m in _ALL}


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
