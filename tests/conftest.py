"""Fixtures that several folders share."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import hypothesis
import pytest

from amphw.cpu_runtime import planes
from amphw.engine.environment import ENGINE, NO_NATIVE
from tests import sketches
from tests.browser import Browser, program
from tests.opencl.devices import POCL_DEVICES

PLANES = ("native", "numpy")

UNTIL = float(os.environ.get("AMPHW_TESTS_UNTIL", "inf"))
"""When what only `make test-all` and `make hardware` run is no longer begun, in seconds since 1970."""

# How long an example takes is the machine's business.
hypothesis.settings.register_profile("amphw", deadline=None)
hypothesis.settings.load_profile("amphw")

# How amphw was installed; which plane runs, tests say.
os.environ.pop(NO_NATIVE, None)

# Before anybody opens a platform: PoCL reads it once.
os.environ["POCL_DEVICES"] = POCL_DEVICES


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > UNTIL and any(item.get_closest_marker(mark) for mark in ("thorough", "hardware")):
        pytest.skip("the time for thorough tests is over")


@pytest.fixture(params=PLANES)
def plane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test once on each data plane of the CPU device; those that are not built are skipped."""
    name: str = request.param
    if name == "native" and not planes.built():
        pytest.skip("the C++ data plane is not built")
    monkeypatch.setenv(ENGINE, name)
    return name


@pytest.fixture
def drawn() -> None:
    """For tests that look at the pictures of a run, where the others have them sketched."""


@pytest.fixture
def sketched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots are put together as always, but not rendered, which takes much longer than a short run: their
    files hold an empty picture."""
    if "drawn" in request.fixturenames:
        return
    for module in ("plots", "node_plots"):
        monkeypatch.setattr(f"amphw.host.{module}.saved", sketches.saved)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A Chromium; without one, tests of pages are skipped."""
    if program() is None:
        pytest.skip("there is no Chromium (on Debian: apt install chromium)")
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
