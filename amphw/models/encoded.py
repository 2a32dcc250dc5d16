"""Instances of models that are written in `amphw.frontend`: each is encoded once and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from amphw.frontend import Compiled
from amphw.ir.instance import Instance

T = TypeVar("T")


class Encoded(Generic[T]):
    """The items of a data set as instances of a compiled model.

    plain: from an item to what the model's specification says. An item is encoded when it is asked for first;
    later ones share its tables, and have numbers of their own.
    """

    def __init__(self, model: Compiled, items: Sequence[T], plain: Callable[[T], Any]) -> None:
        self._model, self._items, self._plain = model, items, plain
        self._made: list[Instance | None] = [None] * len(items)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Instance:
        made = self._made[index]
        if made is None:
            made = self._made[index] = self._model.encode(self._plain(self._items[index]), index)
        return Instance(made.attrs, made.tables, made.data)
