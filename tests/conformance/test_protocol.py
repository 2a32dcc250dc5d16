"""The device protocol over all devices that are quick to load, among them one from another package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amphw.cpu_runtime import planes
from tests.conformance.protocol import *  # noqa: F403
from tests.conformance.protocol import KINDS, Kind

SLOW = ("opencl", "verilator", "a part of simulated hardware")
QUICK = [name for name in KINDS if name not in SLOW]

PACKAGE = '''
"""A device of another package: the reference, and a part that computes with numpy."""

from amphw.engine.kernel_part import KernelPart, KernelSetting
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
def their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As `pip install` leaves one."""
    (tmp_path / "their_devices.py").write_text(PACKAGE)
    about = tmp_path / "their_devices-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-devices\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[amphw.devices]\ntheirs = their_devices:Theirs\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield
    sys.modules.pop("their_devices", None)


@pytest.fixture(params=QUICK)
def kind(request: pytest.FixtureRequest) -> Kind:
    found = KINDS[request.param]
    if found.spec.startswith(("cpu,", "sleep")) and not planes.built():
        pytest.skip("the C++ data plane is not built")
    return found
