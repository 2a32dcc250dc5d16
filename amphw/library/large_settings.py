"""Which settings ask for much memory, where it does not suffice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_IN_FLIGHT = ("max_active_keys", "max_infer_keys", "pipeline_depth")
"""Settings of [train] that multiply what an instance needs; all of [model] may count."""


@contextmanager
def naming_large_settings(model: Any, cfg: Any) -> Iterator[None]:
    """Have a MemoryError from inside say which settings are far above what the model recommends."""
    try:
        yield
    except MemoryError as error:
        if large := _large(model, cfg):
            error.add_note(f"{', '.join(large)}: lower {'it' if len(large) == 1 else 'the first of them'}")
        raise


def _large(model: Any, cfg: Any) -> list[str]:
    from amphw.host.config import resolve

    usual = resolve(model.config, model.defaults)
    pairs = [
        (f"{section}.{name}", getattr(getattr(cfg, section), name), getattr(getattr(usual, section), name))
        for section, names in (("model", vars(cfg.model)), ("train", _IN_FLIGHT))
        for name in names
    ]
    above = [
        (value / default, f"{name} is {value}, usually {default}")
        for name, value, default in pairs
        if type(value) is type(default) is int and value >= 2 * default > 0
    ]
    return [text for _, text in sorted(above, reverse=True)]
