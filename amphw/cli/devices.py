"""`amphw devices`: what can run a model here."""

from __future__ import annotations

from typing import Any

from amphw.cli.options import JsonOption
from amphw.cli.output import emit_json, results, table


def devices(as_json: JsonOption = False) -> None:
    """List the devices, what each can do, and why one cannot be used here."""
    found = [_described(name, entry) for name, entry in _entries().items()]
    if as_json:
        emit_json({"devices": found})
        return
    rows = table("device", "usable", "workers", "formats", "what it is", right=("workers",))
    for each in found:
        more = each["notes"] if each["usable"] else each["problem"]
        about = f"{each['summary']}: {more}" if more else each["summary"]
        rows.add_row(
            each["name"],
            "yes" if each["usable"] else "no",
            str(each.get("workers", "")),
            ", ".join(each.get("formats", ())),
            about,
        )
    results().print(rows)
    for each in found:
        if each.get("advice"):
            results().print(f"\n{each['name']}: {each['advice']}")


def _entries() -> dict[str, Any]:
    from amphw.host.devices import device_entries

    return device_entries()


def _described(name: str, entry: Any) -> dict[str, Any]:
    """What the device says of itself, or why it cannot be made. One that fails must not hide the others."""
    from amphw.host.devices import make_device

    known = {"name": name, "summary": entry.summary, "origin": entry.origin}
    try:
        able = make_device(name).capabilities()
    except Exception as error:  # also a bug in a device that another package brings
        return known | {"usable": False, "problem": str(error) or type(error).__name__}
    return known | {
        "usable": True,
        "kind": able.kind,
        "workers": able.workers,
        "formats": list(able.formats),
        "families": None if able.families is None else sorted(able.families),
        "memory": able.memory,
        "flops": able.flops,
        "notes": able.notes,
        "advice": able.advice,
    }
