"""The device protocol over all devices that are quick to load, among them one from another package."""

from __future__ import annotations

from pathlib import Path

import pytest

from amphw.cpu_runtime import planes
from tests.conformance.packages import install
from tests.conformance.protocol import *  # noqa: F403
from tests.conformance.protocol import KINDS, Kind

SLOW = ("opencl", "verilator", "a part of simulated hardware")
QUICK = [name for name in KINDS if name not in SLOW]

PACKAGE = '''
"""A device of another package: the reference, and a part that computes with numpy."""

from amphw.engine.parts.kernel import KernelPart, KernelSetting
from amphw.engine.numpy_plane.float32 import FLOAT32
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import initial_parameters


def chosen(graph, units, rules, options):
    owners = {u.name: graph.nodes[u.name].params for u in units if u.owns}
    return KernelSetting(FLOAT32, initial_parameters(owners, dict(rules), options.seed))


class Theirs(ReferenceDevice):
    def part(self):
        return KernelPart(self.capabilities(), chosen)
'''


@pytest.fixture(autouse=True)
def their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "theirs", "their_devices:Theirs", PACKAGE)


@pytest.fixture(params=QUICK)
def kind(request: pytest.FixtureRequest) -> Kind:
    found = KINDS[request.param]
    if found.spec.startswith(("cpu,", "sleep")) and not planes.built():
        pytest.skip("the C++ data plane is not built")
    return found
