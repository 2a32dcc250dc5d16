"""The stream components under Verilator, at every pace of their neighbours."""

from __future__ import annotations

from typing import Any

import pytest

from amphw.rtl.gateware.streams import Queue, SkidBuffer
from sim.runner import run_bench


@pytest.mark.parametrize(
    ("name", "make", "capacity"),
    [
        ("skid-buffer", lambda: SkidBuffer(8), 2),
        ("queue-lut", lambda: Queue(8, 5, "lut"), 5),
        ("queue-block", lambda: Queue(8, 16), 16),
    ],
)
def test_what_passes_through(name: str, make: Any, capacity: int) -> None:
    run_bench(make, "through_bench", name=name, settings={"bits": 8, "capacity": capacity})
