"""`amphw opencl`."""

from __future__ import annotations

from pathlib import Path

import pytest

from amphw.opencl import dump
from amphw.opencl.forms import CPU_FORM


@pytest.fixture
def written(monkeypatch) -> list:
    """What was asked of the generator, which writes two files."""
    asked: list = []

    def write(graph, out: Path, form) -> list[Path]:
        asked.append((graph.name, out, form))
        return [out / "cell.cl", out / "head.cl"]

    monkeypatch.setattr(dump, "dump", write)
    return asked


def test_the_files_are_named(amphw, written) -> None:
    done = amphw(
        "opencl", "list-reduction", "--out", "kernels", "--set", "hidden=8", "--device", "opencl:cpu"
    )
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "kernels/cell.cl\nkernels/head.cl\n"
    assert "wrote 2 files for opencl:" in done.stderr
    assert written == [("list-reduction", Path("kernels"), CPU_FORM)]


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
