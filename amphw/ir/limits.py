"""What limits a throughput, in words: one rule for runs, measured or estimated."""

from __future__ import annotations

BUSY = 0.9
"""Share of the time from which on a device, a worker or a link is said to be always busy."""


def waiting(keys: float | None, who: str) -> str:
    """Where nothing is always busy. keys: instances in flight, if known; who: those that wait."""
    if keys is None:
        return f"{who} wait for one another"
    shown = f"{keys:,.0f}" if keys >= 100 else f"{keys:.3g}"
    return f"with {shown} instances in flight, {who} wait for one another"
