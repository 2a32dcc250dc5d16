"""OpenCL in processes of its own, where the environment is read, and devices that are not there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amphw.opencl.platform import platforms
from tests.opencl.kernels import Machine

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = ("POCL_CACHE_DIR", "POCL_DEVICES", "OCL_ICD_VENDORS")


@pytest.fixture(scope="session")
def machine() -> Machine:
    """A device to run single kernels on."""
    pytest.importorskip("pyopencl")
    return Machine()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a process that finds this checkout, and whose cache folder is `tmp_path / "cache"`."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return kept | {"PYTHONPATH": path, "AMPHW_CACHE": str(tmp_path / "cache")}


@pytest.fixture
def python(environment: dict[str, str]) -> Callable[..., str]:
    """Run a program, with variables, as a process of its own -> what it prints."""

    def run(program: str, **variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def a_device(name: str, kind: str, platform: str = "Some platform", **changed: Any) -> SimpleNamespace:
    """What pyopencl shows of a device; a GPU has the limits of an ordinary one."""
    import pyopencl as cl

    known = {
        "name": name,
        "type": getattr(cl.device_type, kind.upper()),
        "platform": SimpleNamespace(name=platform),
        "version": "OpenCL 3.0 some driver",
        "driver_version": "1.0",
        "opencl_c_version": "OpenCL C 1.2",
        "max_compute_units": 8,
        "global_mem_size": 8 << 30,
        "max_mem_alloc_size": 2 << 30,
        "local_mem_size": 48 << 10,
        "max_work_group_size": 1024,
        "extensions": "cl_khr_fp64 cl_khr_fp16x",
        "host_unified_memory": 0,
        "available": 1,
        "compiler_available": 1,
        "int_ptr": 0,
    }
    return SimpleNamespace(**(known | changed))


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """pretend(device, ...): these are all the devices that there are, on the platforms that they name."""

    def use(*devices: SimpleNamespace) -> None:
        names = dict.fromkeys(each.platform.name for each in devices)
        found = [
            SimpleNamespace(
                name=name,
                version="OpenCL 3.0 1.2.3",
                get_devices=lambda name=name: [each for each in devices if each.platform.name == name],
            )
            for name in names
        ]
        monkeypatch.setattr(platforms, "_platforms", lambda cl: found)

    return use
