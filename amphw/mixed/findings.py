"""What a run on several devices has to say at its end."""

from __future__ import annotations

from dataclasses import replace

from amphw.ir.device import Findings


def told(carried: Findings, links: Findings, launches: Findings) -> Findings:
    """What crossed over, what the links with a rate were loaded with, and launches of kernels, as one.

    There is room for one table: that of the links, where there are any. Of links and launches only what they
    have is taken: tables, pictures and figures.
    """
    return replace(
        links if links.rows else launches,
        files={**links.files, **carried.files},
        pictures=links.pictures,
        remarks=carried.remarks,
        figures={**carried.figures, **launches.figures},
    )
