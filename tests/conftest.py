"""Fixtures that several folders share."""

from __future__ import annotations

import os

import pytest

from amphw.cpu_runtime import planes
from amphw.engine.environment import ENGINE, NO_NATIVE
from tests.opencl.devices import POCL_DEVICES

PLANES = ("native", "numpy")

# How amphw was installed; which plane runs, tests say.
os.environ.pop(NO_NATIVE, None)

# Before anybody opens a platform: PoCL reads it once.
os.environ["POCL_DEVICES"] = POCL_DEVICES


@pytest.fixture(params=PLANES)
def plane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test once on each data plane of the CPU device; those that are not built are skipped."""
    name: str = request.param
    if name == "native" and not planes.built():
        pytest.skip("the C++ data plane is not built")
    monkeypatch.setenv(ENGINE, name)
    return name
