"""`amphw devices`."""

from __future__ import annotations

import json
import sys

from amphw.host import devices


def test_the_devices_of_this_machine_are_listed(amphw) -> None:
    done = amphw("devices")
    assert done.exit_code == 0
    for name in ("cpu", "reference", "null"):
        assert f"\n{name} " in done.stdout
    listed = {each["name"]: each for each in json.loads(amphw("devices", "--json").stdout)["devices"]}
    assert listed["reference"]["usable"] and listed["reference"]["workers"] == 1


def test_the_data_plane_of_the_cpu_is_named(amphw, monkeypatch) -> None:
    monkeypatch.setenv("AMPHW_ENGINE", "numpy")
    assert "this machine's cores: worker threads, numpy data plane" in amphw("devices").stdout


def test_advice_stands_below_the_table(amphw, monkeypatch) -> None:
    from amphw.cpu_runtime import planes

    monkeypatch.setattr(planes, "described", lambda: ("numpy data plane", "get a compiler"))
    assert amphw("devices").stdout.endswith("\ncpu: get a compiler\n")


def test_a_broken_device_is_listed_with_its_reason(amphw, monkeypatch) -> None:
    broken = devices.DeviceEntry("broken", "amphw.nowhere:Device", "does not exist")
    known = devices.device_entries() | {"broken": broken}
    monkeypatch.setattr(devices, "device_entries", lambda: known)
    listed = {each["name"]: each for each in json.loads(amphw("devices", "--json").stdout)["devices"]}
    assert not listed["broken"]["usable"]
    assert "amphw.nowhere" in listed["broken"]["problem"]
    assert listed["reference"]["usable"]
    assert "does not exist: " in amphw("devices").stdout


def opencl_rows(amphw) -> list[dict]:
    listed = json.loads(amphw("devices", "--json").stdout)["devices"]
    return [each for each in listed if each["name"].startswith("opencl")]


def test_each_opencl_device_has_a_row(amphw) -> None:
    rows = opencl_rows(amphw)
    assert [each["name"] for each in rows] == [f"opencl:{k}" for k in range(len(rows))]
    pocl = next(each for each in rows if "PoCL" in each["notes"])
    assert pocl["usable"] and pocl["kind"] == "opencl" and pocl["memory"] > 0
    assert "compute unit" in pocl["notes"]
    assert f"\n{pocl['name']} " in amphw("devices").stdout


def test_an_opencl_device_that_cannot_be_used_says_why(amphw, monkeypatch) -> None:
    monkeypatch.setattr("amphw.opencl.platform.pocl.linker", lambda: None)
    pocl = next(each for each in opencl_rows(amphw) if not each["usable"])
    assert "needs the linker ld, which is not on the path. Install binutils" in pocl["problem"]


def test_without_pyopencl_the_listing_says_how_to_get_it(amphw, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    [row] = opencl_rows(amphw)
    assert (row["name"], row["usable"]) == ("opencl", False)
    assert row["problem"] == (
        "OpenCL needs the package pyopencl, which is not installed: "
        'pip install "amphw[opencl]" brings it, and PoCL, which runs OpenCL on CPUs.'
    )
    assert amphw("devices").exit_code == 0


def test_without_a_platform_the_listing_says_how_to_get_one(amphw, monkeypatch) -> None:
    monkeypatch.setattr("amphw.opencl.platform.platforms._platforms", lambda cl: [])
    [row] = opencl_rows(amphw)
    assert not row["usable"] and "there is no OpenCL device here." in row["problem"]
