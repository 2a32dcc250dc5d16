"""`amphw opencl`."""

from __future__ import annotations

from pathlib import Path

import pytest

from amphw.opencl import dump
from amphw.opencl.codegen.forms import CPU_FORM
from amphw.opencl.platform import platforms

NODES = ["cell", "head"]


@pytest.fixture
def written(monkeypatch) -> list:
    """What was asked of the generator, which writes two files."""
    asked: list = []

    def write(graph, rules, out: Path, form, tune, device: str) -> list[Path]:
        asked.append((graph.name, sorted(rules), out, form, device))
        return [out / "cell.cl", out / "head.cl"]

    monkeypatch.setattr(dump, "dump", write)
    return asked


def test_the_files_are_named(amphw, written) -> None:
    done = amphw(
        "opencl", "list-reduction", "--out", "kernels", "--set", "hidden=8", "--device", "opencl:cpu"
    )
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "kernels/cell.cl\nkernels/head.cl\n"
    (device,) = platforms.choose("cpu")
    assert f"wrote 2 files for {device.name}" in done.stderr
    assert written == [("list-reduction", NODES, Path("kernels"), CPU_FORM, device.name)]


def test_the_update_rules_are_those_of_the_configuration(amphw, tmp_path) -> None:
    asked = ("opencl", "list-reduction", "--out", str(tmp_path), "--set", "hidden=8")
    assert amphw(*asked, "--set", "update.nodes.head.optimizer=momentum").exit_code == 0
    assert "one step of momentum" in (tmp_path / "head.cl").read_text()
    assert "one step of adam" in (tmp_path / "cell.cl").read_text()


def test_without_a_device_kernels_are_those_of_a_cpu(amphw, written, monkeypatch) -> None:
    """To read them, nothing has to be installed. Where a device was asked for, it must be there."""
    monkeypatch.setattr(platforms, "found", list)
    done = amphw("opencl", "list-reduction", "--out", "kernels")
    assert done.exit_code == 0, done.stderr
    assert "kernels for any CPU, in a form that nobody has measured: there is no OpenCL" in done.stderr
    assert written == [("list-reduction", NODES, Path("kernels"), CPU_FORM, "any CPU")]
    done = amphw("opencl", "list-reduction", "--out", "kernels", "--device", "opencl")
    assert done.exit_code == 1 and len(written) == 1
    assert done.stderr.startswith("amphw: there is no OpenCL device here.")


def test_a_device_that_does_not_exist(amphw, written) -> None:
    done = amphw("opencl", "mnist", "--out", "kernels", "--device", "opencl:99")
    assert done.exit_code == 1 and written == []
    assert done.stderr.startswith("amphw: there is no OpenCL device 99. Devices: opencl:0 ")


def test_other_devices_have_no_kernels_to_show(amphw, written) -> None:
    done = amphw("opencl", "mnist", "--out", "kernels", "--device", "cpu")
    assert done.exit_code == 2 and written == []
    assert "cpu: expected an OpenCL device, such as opencl:0" in done.stderr


def test_a_folder_must_be_named(amphw) -> None:
    done = amphw("opencl", "mnist")
    assert done.exit_code == 2 and "--out" in done.stderr
