"""Devices are made by name; whatever is wrong with one, the answer says which others there are."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from amphw.host import devices
from amphw.host.devices import DeviceError, UnusableError, device_entries, make_device, stands_for
from amphw.host.null_device import NullDevice
from amphw.ir.errors import AmphwError, DeviceAbsentError
from amphw.ir.reference import ReferenceDevice


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package that brings the devices `sleepy`, `broken`, and one that takes the name of a built-in one."""
    module = ModuleType("sleepy_package")
    monkeypatch.setitem(sys.modules, "sleepy_package", module)
    points = [
        metadata.EntryPoint(name, value, devices.GROUP)
        for name, value in (
            ("sleepy", "sleepy_package:make"),
            ("broken", "sleepy_package:missing"),
            ("gone", "sleepy_package.gone:make"),
            ("needy", "needy_package:make"),
            ("null", "sleepy_package:make"),
        )
    ]

    def entry_points(group: str) -> Any:
        return points if group == devices.GROUP else []

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    return module


def test_the_built_in_devices_are_made_by_name() -> None:
    assert isinstance(make_device("reference"), ReferenceDevice)
    assert isinstance(make_device("null"), NullDevice)
    assert make_device("cpu").capabilities().kind == "cpu"


def test_the_environment_puts_the_reference_in_place_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPHW_ENGINE", "reference")
    assert isinstance(make_device("cpu"), ReferenceDevice)
    assert stands_for("cpu") == "reference" and stands_for("null") == "null"


@pytest.mark.parametrize("engine", ["", "native", "numpy"])
def test_other_engines_are_planes_of_the_cpu_device(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPHW_ENGINE", engine)
    if engine == "native":
        pytest.importorskip("amphw.engine._native", reason="the C++ data plane is not built")
    assert stands_for("cpu") == "cpu" and make_device("cpu").capabilities().kind == "cpu"


def test_an_unknown_engine_is_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPHW_ENGINE", "fast")
    with pytest.raises(AmphwError, match="^AMPHW_ENGINE=fast, allowed is native, numpy, reference$"):
        make_device("cpu")


def test_an_engine_that_contradicts_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPHW_ENGINE", "native")
    monkeypatch.setenv("AMPHW_NO_NATIVE", "1")
    for spec in ("cpu", "cpu,fixed"):
        with pytest.raises(AmphwError, match="contradict"):
            make_device(spec)


def test_an_argument_follows_a_colon() -> None:
    device = make_device("reference:lifo")
    assert isinstance(device, ReferenceDevice) and device.order == "lifo"
    with pytest.raises(DeviceError, match="the device 'null' takes no argument, but 'null:3' gives one"):
        make_device("null:3")


def test_an_unknown_device_is_answered_with_those_there_are() -> None:
    with pytest.raises(
        DeviceError,
        match=r"no device 'referense'\. Did you mean reference\? Devices: cpu, opencl, fixed, verilator, bo",
    ):
        make_device("referense")


def test_a_package_adds_a_device(package: ModuleType) -> None:
    asked: list[str] = []

    class Sleepy(NullDevice):
        def __init__(self, argument: str = "none") -> None:
            asked.append(argument)

    package.make = Sleepy  # type: ignore[attr-defined]
    assert isinstance(make_device("sleepy"), Sleepy)
    make_device("sleepy:10ms")
    assert asked == ["none", "10ms"]
    entry = device_entries()["sleepy"]
    assert (entry.target, entry.origin) == ("sleepy_package:make", "another package")
    assert "reference" in device_entries()


def test_a_package_does_not_replace_a_built_in_device(package: ModuleType) -> None:
    assert device_entries()["null"].origin == "amphw"
    assert type(make_device("null")) is NullDevice


def test_a_device_that_cannot_be_imported_says_why_and_what_else_there_is(
    package: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needy_package.py").write_text("import a_library_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnusableError) as caught:
        make_device("needy")
    assert "'needy' cannot be used here: No module named 'a_library_that_nobody_has'. Install" in str(
        caught.value
    )
    assert (
        "Devices: cpu, opencl, fixed, verilator, board, reference, sleep, process, null, broken, gone, sl"
        in str(caught.value)
    )


@pytest.mark.parametrize(
    ("spec", "target"), [("broken", "sleepy_package:missing"), ("gone", "sleepy_package.gone:make")]
)
def test_an_entry_point_that_names_nothing_is_a_mistake_of_its_package(
    package: ModuleType, spec: str, target: str
) -> None:
    """And no device that is absent, in whose place the CPU would go on."""
    for each in (spec, f"cpu,{spec}"):
        with pytest.raises(DeviceError, match=f"names {target}, .*a mistake in that package") as caught:
            make_device(each)
        assert not isinstance(caught.value, DeviceAbsentError)


def test_listing_imports_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"imported {name}")

    monkeypatch.setattr(devices.importlib, "import_module", refuse)
    assert list(device_entries())[:9] == [
        "cpu", "opencl", "fixed", "verilator", "board", "reference", "sleep", "process", "null",
    ]  # fmt: skip


def test_an_error_inside_a_device_is_not_taken_for_a_wrong_argument(package: ModuleType) -> None:
    def make() -> None:
        raise TypeError("a bug of its own")

    package.make = make  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="a bug of its own"):
        make_device("sleepy")


def test_variants_are_named_as_they_are_asked_for(package: ModuleType) -> None:
    able = NullDevice().capabilities()
    package.several = lambda: {"0": able, "1": "is broken"}  # type: ignore[attr-defined]
    entry = devices.DeviceEntry("sleepy", "sleepy_package:make", "", variants="sleepy_package:several")
    assert devices.device_variants(entry) == {"sleepy:0": able, "sleepy:1": "is broken"}
