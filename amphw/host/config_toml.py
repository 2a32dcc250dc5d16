"""A run's configuration as a TOML file, which `resolve` reads back to an equal configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from amphw.host.config import RunConfig, sections
from amphw.ir.config_fields import NONE, Option, options

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(config: RunConfig[Any]) -> str:
    """Every setting of `config`, with its help text as a comment. Absent values are written as "none"."""
    blocks = []
    for name, kind in sections(type(config.model)).items():
        known = options(kind)
        section = getattr(config, name)
        blocks.append(_block(name, {key: getattr(section, key) for key in known}, known))
        if name == "update":
            for node, settings in config.node_updates.items():
                blocks.append(_block(f"update.nodes.{_key(node)}", dict(settings), known))
    return "\n".join(blocks)


def _block(header: str, values: dict[str, Any], known: dict[str, Option]) -> str:
    lines = [f"[{header}]"]
    for key, value in values.items():
        # A comment ends with its line, so a help text over several lines must not be taken as it is.
        comment = " ".join(known[key].help.split())
        lines.append(f"{_key(key)} = {_value(value)}" + (f"  # {comment}" if comment else ""))
    return "\n".join(lines) + "\n"


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _value(value: Any) -> str:
    if value is None:
        return _string(NONE)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    return repr(value)  # the shortest digits that give the same number back


def _string(text: str) -> str:
    # JSON's escapes are a subset of TOML's; DEL is the one character that only TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def dotted(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings by their full names, such as train.epochs."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
