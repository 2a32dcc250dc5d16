"""`amphw devices`."""

from __future__ import annotations

import json

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
