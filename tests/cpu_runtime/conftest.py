"""The CPU device for the tests of this folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from amphw.cpu_runtime import CpuDevice, planes
from amphw.ir.device import DeviceOptions
from amphw.ir.graph import Graph
from amphw.ir.update import UpdateRule
from tests.cpu_runtime.running import Loader


@pytest.fixture
def load(plane: str) -> Iterator[Loader]:
    """Load a graph on a device that is closed after the test; on each data plane."""
    opened: list[CpuDevice] = []

    def loaded(
        graph: Graph, rule: UpdateRule | None = None, updates: str = "off", keys: int = 8, **settings: Any
    ) -> CpuDevice:
        device = CpuDevice()
        opened.append(device)
        device.load(
            graph, {"*": rule or UpdateRule()}, DeviceOptions(keys, keys, updates, 3, False, settings)
        )
        return device

    yield loaded
    for device in opened:
        device.close()


@pytest.fixture
def gate(plane: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Workers serve no frame until it is set; they hear of everything else."""
    event = threading.Event()
    kind, _ = planes.chosen()
    serve = kind.run

    def gated(self: Any, worker: int, budget: float) -> bool:
        return event.wait(0.01) and serve(self, worker, budget)

    monkeypatch.setattr(kind, "run", gated)
    yield event
    event.set()
