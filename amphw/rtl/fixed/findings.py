"""What a run on the `fixed` device leaves: its meters as JSON and as a picture, and what to choose."""

from __future__ import annotations

import json
from typing import Any

from amphw.ir.device import Findings
from amphw.rtl.fixed.meters import EVERY, Meter, Meters, share
from amphw.rtl.formats import Formats

JSON, PICTURE = "formats.json", "formats.png"

WORST = 8
"""Tensors in the table."""


def findings(formats: Formats, meters: Meters) -> Findings:
    """Files, picture, the tensors that lose most, and the formats that would have held everything."""
    from amphw.rtl.fixed.picture import draw

    used = meters.used
    if not used:
        return Findings()
    suggested = meters.suggested()
    files = {JSON: (json.dumps(_record(formats, suggested, used), indent=1) + "\n").encode()}
    files[PICTURE] = draw(used, f"Numbers in fixed point ({formats}) against the range of their formats")
    lossy = [m for m in used if m.saturated or m.vanished]
    return Findings(
        files,
        {PICTURE: "Magnitudes of numbers against the range of their formats"},
        "what the formats lose",
        ("tensor", "format", "least", "greatest", "saturated", "vanished"),
        tuple(_row(m) for m in lossy[:WORST]),
        _remarks(formats, suggested, lossy),
    )


def _row(m: Meter) -> tuple[str, ...]:
    low, high = m.range
    return (
        m.name,
        str(m.format),
        f"{low:.4g}",
        f"{high:.4g}",
        share(m.saturated, m.saturated_share),
        share(m.vanished, m.vanished_share),
    )


def _remarks(formats: Formats, suggested: Formats, lossy: list[Meter]) -> tuple[str, ...]:
    more = f"; {len(lossy) - WORST} more lose something" if len(lossy) > WORST else ""
    first = (
        f"saturated: of all numbers; vanished: of those that are not 0, one call in {EVERY} looked at{more}"
    )
    if suggested == formats:
        return first, f"formats: {formats} is the finest that holds all that was seen"
    stuck = any(m.saturated for m in lossy if m.kind in ("value", "weight", "gradient"))
    hint = " (at least: what saturates hides how large numbers would have become)" if stuck else ""
    return first, f"formats: the finest that hold all that was seen are {suggested}{hint}"


def _record(formats: Formats, suggested: Formats, used: list[Meter]) -> dict[str, Any]:
    return {
        "formats": str(formats),
        "suggested": str(suggested),
        "sampled_calls": EVERY,
        "tensors": [m.to_json() for m in used],
    }
