"""`amphw devices`: what can run a model here."""

from __future__ import annotations

from typing import Any

from amphw.cli.options import JsonOption
from amphw.cli.output import emit_json, results, table


def devices(as_json: JsonOption = False) -> None:
    """List the devices, what each can do, and why one cannot be used here."""
    found = [each for name, entry in _entries().items() for each in _described(name, entry)]
    if as_json:
        emit_json({"devices": found})
        return
    rows = table("device", "usable", "workers", "formats", "what it is", right=("workers",))
    for each in found:
        more = each["notes"] if each["usable"] else each["problem"]
        about = ": ".join(filter(None, (each["summary"], more)))
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


def _described(name: str, entry: Any) -> list[dict[str, Any]]:
    """What the device, or each of its kind, says of itself, or why it cannot be made.

    One that fails must not hide the others.
    """
    from amphw.host.devices import device_variants, make_device

    known = {"name": name, "summary": entry.summary, "origin": entry.origin}
    try:
        if entry.variants:
            # What it is, is said by the device itself; the entry's summary is about all of them.
            found = device_variants(entry).items()
            return [known | {"name": spec, "summary": ""} | _able(able) for spec, able in found]
        return [known | _able(make_device(name).capabilities())]
    except Exception as error:  # also a bug in a device that another package brings
        return [known | _able(str(error) or type(error).__name__)]


def _able(able: Any) -> dict[str, Any]:
    """able: the device's capabilities, or why it has none."""
    if isinstance(able, str):
        return {"usable": False, "problem": able}
    return {
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
