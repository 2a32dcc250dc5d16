"""The stream components under Verilator, at every pace of their neighbours."""

from __future__ import annotations

from typing import Any

import pytest
from amaranth.lib import data

from amphw.rtl.gateware.counters import Counters
from amphw.rtl.gateware.streams import Arbiter, Demultiplexer, Join, Queue, SkidBuffer
from sim.runner import run_bench

PACKET = data.StructLayout({"destination": 2, "last": 1, "body": 8})


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


@pytest.mark.thorough
def test_arbiter() -> None:
    run_bench(
        lambda: Arbiter(PACKET, 3, packets=True), "arbiter_bench", name="arbiter", settings={"inputs": 3}
    )


@pytest.mark.thorough
def test_demultiplexer() -> None:
    run_bench(
        lambda: Demultiplexer(PACKET, 3), "demultiplexer_bench", name="demultiplexer", settings={"outputs": 3}
    )


@pytest.mark.thorough
def test_join() -> None:
    run_bench(lambda: Join(4, 8, 8), "join_bench", name="join")


@pytest.mark.thorough
def test_counters() -> None:
    settings = {"capacity": 7, "width": 9}
    run_bench(lambda: Counters(7, 9), "counters_bench", name="counters", settings=settings)
