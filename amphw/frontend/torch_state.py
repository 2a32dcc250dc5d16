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
    when the module was imported.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    name: str
    turned: bool
    values: np.ndarray | None

    def became(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """The tensor, with a layer's values by name; one that the layer does not have stays as it was."""
        if self.values is not None:
            return self.values
        found = values[self.name]
        return (found.T if self.turned else found).reshape(self.shape)


@dataclass(frozen=True)
class TorchState:
    """All tensors of a module that was imported."""

    entries: tuple[TorchEntry, ...]

    def became(self, values: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The `state_dict`, with a layer's values by name."""
        import torch

        return {
            e.path: torch.tensor(np.array(e.became(values), order="C"), dtype=getattr(torch, e.dtype))
            for e in self.entries
        }

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                **{name: getattr(e, name) for name in ("path", "dtype", "name", "turned")},
                "shape": list(e.shape),
                "values": None if e.values is None else b64encode(e.values.astype("<f8").tobytes()).decode(),
            }
            for e in self.entries
        ]

    @classmethod
    def from_json(cls, data: list[dict[str, Any]]) -> TorchState:
        """The inverse of `to_json`. Raises KeyError and ValueError for what it has not written."""
        return cls(
            tuple(
                TorchEntry(e["path"], e["dtype"], tuple(e["shape"]), e["name"], bool(e["turned"]), _values(e))
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
            "no layer of this model was made by from_torch, so there is no module to go back to; "
            "`.parameters` has all values, as numpy arrays"
        )
    try:
        return {name: state.became(values.get(name, {})) for name, state in imported.items()}
    except ImportError:
        raise FrontendError("to_torch needs PyTorch: pip install 'amphw[torch]'") from None
