"""The device protocol over the devices that compile for long before they run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conformance.protocol import *  # noqa: F403
from tests.conformance.protocol import KINDS, Kind
from tests.conformance.test_protocol import SLOW
from tests.daily import daily
from tests.opencl.devices import PTHREAD


@pytest.fixture(params=daily(SLOW[:1], SLOW[1:]))
def kind(request: pytest.FixtureRequest) -> Kind:
    if request.param == "opencl":
        pytest.importorskip("pyopencl")
        return replace(KINDS[request.param], spec=f"opencl:{PTHREAD}")
    pytest.importorskip("amaranth")
    return KINDS[request.param]
