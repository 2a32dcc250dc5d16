"""Which data plane runs, and what is said of it."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import pytest

from amphw.cpu_runtime import CpuDevice, planes
from amphw.engine.environment import ENGINE, NO_NATIVE, wanted
from amphw.engine.numpy_plane import NumpyPlane
from amphw.ir.errors import AmphwError


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extension is not there."""
    _refuse(monkeypatch, ModuleNotFoundError("no module"))
    monkeypatch.delenv(ENGINE, raising=False)


def _refuse(monkeypatch: pytest.MonkeyPatch, error: ImportError) -> None:
    load = builtins.__import__

    def importing(name: str, *arguments: Any) -> Any:
        if name == "amphw.engine._native":
            raise error
        return load(name, *arguments)

    for name in ("amphw.engine._native", "amphw.cpu_runtime.native_plane"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(builtins, "__import__", importing)


def test_the_plane_that_was_asked_for(plane: str) -> None:
    chosen, _ = planes.chosen()
    assert (chosen is NumpyPlane) == (plane == "numpy")
    notes = CpuDevice().capabilities().notes
    assert notes.startswith(
        "worker threads, " + {"native": "C++ data plane, ", "numpy": "numpy data plane"}[plane]
    )
    assert CpuDevice().capabilities().advice == "" or not planes.built()


def test_without_the_extension_numpy_takes_over(unbuilt: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not planes.built() and planes.chosen()[0] is NumpyPlane
    monkeypatch.setenv("CXX", "sh")  # a compiler is there
    assert CpuDevice().capabilities().advice == (
        "the C++ data plane, which is faster, is not built: install amphw again"
    )
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert CpuDevice().capabilities().advice == (
        "the C++ data plane, which is faster, is not built: "
        "get no-such-compiler (apt install g++, or set CXX), then install amphw again"
    )


def test_an_extension_that_cannot_be_loaded_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    _refuse(monkeypatch, ImportError("libstdc++.so.6 is too old"))
    monkeypatch.delenv(ENGINE, raising=False)
    assert "cannot be loaded (libstdc++.so.6 is too old): " in CpuDevice().capabilities().advice


def test_native_is_not_replaced_in_silence(unbuilt: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE, "native")
    with pytest.raises(
        AmphwError, match="^AMPHW_ENGINE=native, but the C\\+\\+ data plane is not built; install"
    ):
        CpuDevice()


@pytest.mark.parametrize("no", ["1", "yes", "ON", "true"])
def test_without_native_is_numpy_when_it_runs_too(no: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is advised: whoever has said so knows."""
    monkeypatch.delenv(ENGINE, raising=False)
    monkeypatch.setenv(NO_NATIVE, no)
    assert planes.chosen()[0] is NumpyPlane
    able = CpuDevice().capabilities()
    assert (able.notes, able.advice) == ("worker threads, numpy data plane", "")


@pytest.mark.parametrize("no", ["", "0", "no", "Off", "false"])
def test_what_the_build_takes_for_a_no_is_one(no: str, plane: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NO_NATIVE, no)
    assert wanted() == plane and (planes.chosen()[0] is NumpyPlane) == (plane == "numpy")


def test_native_and_no_native_contradict_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE, "native")
    monkeypatch.setenv(NO_NATIVE, "1")
    with pytest.raises(
        AmphwError, match="^AMPHW_NO_NATIVE=1 and AMPHW_ENGINE=native contradict each other: u"
    ):
        CpuDevice()


@pytest.mark.parametrize("engine", ["numpy", "reference"])
def test_engines_that_are_not_native_are_those_asked_for(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENGINE, engine)
    monkeypatch.setenv(NO_NATIVE, "1")
    assert wanted() == engine


def test_kernels_that_this_machine_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("amphw.engine._native", reason="the C++ data plane is not built")
    monkeypatch.setenv(planes.ISA, "mmx")
    monkeypatch.setenv(ENGINE, "native")
    with pytest.raises(AmphwError, match="^AMPHW_ISA=mmx, this machine runs .*generic$"):
        CpuDevice()
