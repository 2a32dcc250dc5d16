"""`amphw models`, and the listing of a model's settings that `amphw train MODEL --help-config` prints."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any

from amphw.cli.options import JsonOption
from amphw.cli.output import emit_json, results, table


def models(as_json: JsonOption = False) -> None:
    """List the models that can be trained."""
    from amphw.models import MODELS, get_model

    found = [get_model(name) for name in sorted(MODELS)]
    if as_json:
        emit_json(
            {
                "models": [
                    {"name": each.name, "metric": each.metric, "summary": each.summary} for each in found
                ]
            }
        )
        return
    rows = table("model", "metric", "what it is")
    for each in found:
        rows.add_row(each.name, each.metric, each.summary)
    results().print(rows)


def show_settings(model: Any, as_json: bool) -> None:
    """Every key of the model's configuration: what it is by default, what it may be, what it does."""
    listing = list(_settings(model))
    if as_json:
        emit_json({"model": model.name, "settings": listing})
        return
    out = results()
    section = None
    for entry in listing:
        if entry["section"] != section:
            section = entry["section"]
            out.print(f"\n[{section}]" if section != "model" else f"[{section}]")
        out.print(f"  {entry['key']} = {entry['shown']}")
        if entry["help"]:
            out.print(f"      {entry['help']}")
        also = f"; also called {', '.join(entry['aliases'])}" if entry["aliases"] else ""
        out.print(f"      {entry['allowed']}{also}")
    out.print(
        "\nGive them with --set KEY=VALUE (SECTION.KEY=VALUE where two sections have the key), or in a TOML "
        "file\nwith --config. [update] holds for every node with parameters; for one node, write "
        "update.nodes.NODE.KEY=VALUE."
    )


def _settings(model: Any) -> Any:
    from amphw.host.config import sections
    from amphw.ir.config_fields import NONE, options

    for section, kind in sections(model.config).items():
        given = model.defaults.get(section, {})
        for key, each in options(kind).items():
            default = given.get(key, each.default)
            required = default is MISSING
            yield {
                "section": section,
                "key": key,
                "default": None if required else default,
                "shown": "(must be given)" if required else _shown(default, NONE),
                "required": required,
                "allowed": each.allowed,
                "help": each.help,
                "aliases": list(each.aliases),
            }


def _shown(value: Any, none: str) -> str:
    if value is None:
        return none
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_shown(each, none) for each in value) + "]"
    return str(value)
