"""Modules of PyTorch, written in a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional


def module(forward: Callable[..., Any], **parts: Any) -> Any:
    """A module with this forward function and these parts; a number or a tuple is a parameter's shape."""
    made = type("Module", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        drawn = isinstance(part, int | tuple)
        setattr(made, name, nn.Parameter(torch.randn(part) * 0.5) if drawn else part)
    return made
