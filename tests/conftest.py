"""Fixtures that several folders share."""

from __future__ import annotations

import os

import pytest

from amphw.cpu_runtime import planes
from tests.opencl.devices import POCL_DEVICES

PLANES = ("native", "numpy")

# Before anybody opens a platform: PoCL reads it once.
os.environ["POCL_DEVICES"] = POCL_DEVICES


@pytest.fixture(params=PLANES)
def plane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test once on each data plane of the CPU device; those that are not built are skipped."""
    name: str = request.param
    if name == "native" and not planes.built():
        pytest.skip("the C++ data plane is not built")
    monkeypatch.setenv(planes.ENGINE, name)
    return name
