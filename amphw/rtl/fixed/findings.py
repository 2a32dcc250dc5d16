"""What a run on the `fixed` device leaves: its meters as JSON and as a picture, and what to choose."""

from __future__ import annotations

import json
from typing import Any

from amphw.ir.device import Findings
from amphw.rtl.fixed.meters import EVERY, FIRST, Meter, Meters, share
from amphw.rtl.numbers.formats import Formats

JSON, PICTURE = "formats.json", "formats.png"

WORST = 8
"""Tensors in the table."""

LEAST_UPDATES = 1000
"""Before so many, formats are not suggested: a run's rate may still rise, and its weights are near where they
started, so that what has been seen says little of what they will need."""


def findings(formats: Formats, meters: Meters) -> Findings:
    """Files, picture, the tensors that lose most, and the formats that would have held everything."""
    from amphw.rtl.fixed.picture import draw

    used = meters.used
    if not used:
        return Findings()
    suggested = meters.suggested() if meters.updates >= LEAST_UPDATES else None
    files = {JSON: (json.dumps(_record(formats, suggested, meters), indent=1) + "\n").encode()}
    files[PICTURE] = draw(used, f"Numbers in fixed point ({formats}) against the range of their formats")
    lossy = [m for m in used if m.saturated or m.vanished]
    return Findings(
        files,
        {PICTURE: "Magnitudes of numbers against the range of their formats"},
        "what the formats lose",
        ("tensor", "format", "least", "greatest", "saturated", "vanished"),
        tuple(_row(m) for m in lossy[:WORST]),
        _remarks(formats, suggested, lossy, meters.updates),
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


def _remarks(
    formats: Formats, suggested: Formats | None, lossy: list[Meter], updates: int
) -> tuple[str, ...]:
    more = f"; {len(lossy) - WORST} more lose something" if len(lossy) > WORST else ""
    first = (
        f"saturated: of all numbers; vanished: of those that are not 0, in the first {FIRST} calls and one "
        f"in {EVERY} after them{more}"
    )
    if suggested is None:
        return first, (
            f"formats: none are suggested after {updates:,} updates; that takes {LEAST_UPDATES:,}, and a run "
            "that has reached its target"
        )
    if suggested == formats:
        seen = f"{formats} is the finest that holds all that was seen"
    else:
        seen = f"the finest that hold all that was seen are {suggested}"
    stuck = any(m.saturated for m in lossy if m.kind in ("value", "weight", "gradient"))
    hint = " (at least: what saturates hides how large numbers would have become)" if stuck else ""
    return first, (
        f"formats: in {updates:,} updates, {seen}{hint}; choose by this only after a run that has reached "
        "its target: until then weights and sums grow"
    )


def _record(formats: Formats, suggested: Formats | None, meters: Meters) -> dict[str, Any]:
    return {
        "formats": str(formats),
        "updates": meters.updates,
        "held": str(meters.suggested()),
        "suggested": str(suggested) if suggested is not None else None,
        "sampled_first_calls": FIRST,
        "sampled_calls": EVERY,
        "tensors": [m.to_json() for m in meters.used],
    }
