"""Links whose rate a run states, because they are modelled: what went over them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from amphw.engine.lowering.placing import HOST, links_asked_for
from amphw.ir.device import Findings, LinkRate, LinkUse
from amphw.ir.errors import AmphwError
from amphw.ir.units import written

FIXED = "its link is what it is; device.links is for devices that are simulated: verilator and sleep"


def check_labels(links: Mapping[str, LinkRate], labels: Iterable[str], absent: Iterable[str] = ()) -> None:
    """Raises AmphwError for a link of a device that there is none of, and for that of the host."""
    known = list(labels)
    for label in links:
        if label == HOST:
            raise AmphwError(f"device.links: {HOST}: {FIXED}")
        if label not in known and label not in absent:
            raise AmphwError(
                f"device.links: there is no device '{label}' in this run; there are {', '.join(known)}"
            )


def link_of(text: str | Mapping[str, LinkRate], label: str) -> LinkRate | None:
    """What `device.links` states for a run on the one device `label`. Raises AmphwError as `check_labels`."""
    links = links_asked_for(text) if isinstance(text, str) else text
    check_labels(links, [label])
    return links.get(label)


def carried_found(carried: Mapping[str, tuple[int, int]], keeping: Collection[str]) -> Findings:
    """What crossed over to each device and back, as sentences and as messages.json.

    carried: bytes of messages, to a device and back, by its label. keeping: those devices that keep to
    themselves what their nodes send each other.
    """
    if not carried:
        return Findings()
    remarks, each = [], {}
    for label, (to, back) in carried.items():
        within = (
            "what its nodes send each other stayed there"
            if label in keeping
            else "also what its nodes send each other"
        )
        remarks.append(
            f"{label}: {written(to, 'B')} of messages crossed over to it, {written(back, 'B')} back; {within}"
        )
        each[label] = {"bytes_to": to, "bytes_back": back, "keeps": label in keeping}
    text = json.dumps(each, indent=1) + "\n"
    return Findings({"messages.json": text.encode()}, remarks=tuple(remarks), figures={"messages": each})


def links_found(uses: Mapping[str, LinkUse]) -> Findings:
    """A table of what the links were loaded with, and links.json; nothing without links."""
    if not uses:
        return Findings()
    rows = []
    for label, use in uses.items():
        simulated = use.clock is not None
        idle = f"{use.share(use.idle):.0%}"
        if use.clock is not None:
            idle += f" ({use.idle * use.clock:,.0f} cycles)"
        rows.append(
            (
                label,
                str(use.rate),
                written(use.seconds, "s") + (" simulated" if simulated else ""),
                *(
                    f"{count // use.word:,} words" if simulated else written(count, "B")
                    for count in (use.sent, use.came)
                ),
                *(f"{use.share(busy):.0%}" for busy in (use.busy_to, use.busy_back)),
                idle,
            )
        )
    columns = ("device", "link", "time", "sent to it", "came back", "in use to it", "back", "waited for it")
    text = json.dumps({label: _json(use) for label, use in uses.items()}, indent=1) + "\n"
    return Findings({"links.json": text.encode()}, heading="Links", columns=columns, rows=tuple(rows))


def _json(use: LinkUse) -> dict[str, Any]:
    out: dict[str, Any] = {
        "link": str(use.rate),
        "bytes_to": use.sent,
        "bytes_back": use.came,
        "seconds": use.seconds,
        "share_to": use.share(use.busy_to),
        "share_back": use.share(use.busy_back),
        "share_idle": use.share(use.idle),
    }
    if use.clock is not None:
        cycles = {"cycles": use.seconds, "idle_cycles": use.idle}
        out |= {"clock": use.clock, "words_to": use.sent // use.word, "words_back": use.came // use.word}
        out |= {name: round(seconds * use.clock) for name, seconds in cycles.items()}
    return out
