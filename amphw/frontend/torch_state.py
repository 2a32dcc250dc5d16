"""The way back to PyTorch: the `state_dict` of an imported module, with other values of its parameters."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from amphw.frontend.source import FrontendError


@dataclass(frozen=True)
class TorchEntry:
    """One tensor of a module's `state_dict`.

    path: its name there. dtype: PyTorch's name for its type. shape: its own. name: of the parameter here that
    has taken its place, turned: whether that is its transpose. values: where there is none, those that it had
    when the module was imported. at: where the parameter is a part of the tensor, its number. The whole's
    entry stands before it, and shape is that of the part. node: whose parameter it is, where that is not the
    module's one layer. axes: of a parameter that is stored with other dimensions first, their order.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    name: str
    turned: bool
    values: np.ndarray | None
    at: int | None = None
    node: str = ""
    axes: tuple[int, ...] = ()

    def became(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """The tensor, with a layer's values by name; one that the layer does not have stays as it was."""
        if self.values is not None:
            return self.values
        found = values[self.name]
        if self.axes:
            stored = found.reshape([self.shape[d] for d in self.axes])
            return stored.transpose(np.argsort(self.axes))
        return (found.T if self.turned else found).reshape(self.shape)


@dataclass(frozen=True)
class TorchState:
    """All tensors of a module that was imported."""

    entries: tuple[TorchEntry, ...]

    def became(self, layer: str, values: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """The `state_dict`, with values by node and name; layer: the node of what has none of its own.

        It is in the module's types, but what is given in double precision, such as gradients to compare,
        stays so.
        """
        import torch

        arrays = [np.array(e.became(values.get(e.node or layer, {})), order="C") for e in self.entries]
        double = {
            e.path
            for e, a in zip(self.entries, arrays, strict=True)
            if e.values is None and a.dtype == np.float64
        }
        made = dict[str, Any]()
        for e, array in zip(self.entries, arrays, strict=True):
            kind = torch.float64 if e.path in double else getattr(torch, e.dtype)
            if e.at is None:
                made[e.path] = torch.tensor(array, dtype=kind)
            else:
                made[e.path][e.at] = torch.tensor(array, dtype=kind)
        return made

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                **{name: getattr(e, name) for name in ("path", "dtype", "name", "turned", "at")},
                "shape": list(e.shape),
                **({"node": e.node, "axes": list(e.axes)} if e.node else {}),
                "values": None if e.values is None else b64encode(e.values.astype("<f8").tobytes()).decode(),
            }
            for e in self.entries
        ]

    @classmethod
    def from_json(cls, data: list[dict[str, Any]]) -> TorchState:
        """The inverse of `to_json`. Raises KeyError and ValueError for what it has not written."""
        return cls(
            tuple(
                TorchEntry(
                    *(e["path"], e["dtype"], tuple(e["shape"]), e["name"], bool(e["turned"]), _values(e)),
                    *(e.get("at"), e.get("node", ""), tuple(e.get("axes", ()))),
                )
                for e in data
            )
        )


def _values(entry: Mapping[str, Any]) -> np.ndarray | None:
    if entry["values"] is None:
        return None
    return np.frombuffer(b64decode(entry["values"], validate=True), "<f8").reshape(entry["shape"])


def to_torch(
    imported: Mapping[str, TorchState], values: Mapping[str, Mapping[str, np.ndarray]]
) -> dict[str, dict[str, Any]]:
    """By layer the `state_dict` of its module, with values by node and name. Raises FrontendError where no
    layer came from PyTorch, and without PyTorch."""
    if not imported:
        raise FrontendError(
            "no layer of this model was made by from_torch or from_export, so there is no module to go back "
            "to; "
            "`.parameters` has all values, as numpy arrays"
        )
    try:
        return {name: state.became(name, values) for name, state in imported.items()}
    except ImportError:
        raise FrontendError("to_torch needs PyTorch: pip install 'amphw[torch]'") from None
