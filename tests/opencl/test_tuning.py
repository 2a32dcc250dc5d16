"""Forms are measured once, and the file that keeps them may be in any state."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from amphw.opencl import tuning
from amphw.opencl.codegen.forms import CPU_FORM, GPU_FORM, SINGLE_FORM, ProductForm
from amphw.opencl.platform.platforms import Found
from amphw.opencl.tuning import Forms, Tuner, candidates, fits, height_class, search, size_class
from tests.opencl.kernels import Machine

FOUND = Forms(
    tuple(replace(CPU_FORM, product=ProductForm(rows=rows, vectors=2)) for rows in (1, 5, 6, 7)),
    replace(CPU_FORM, product=ProductForm(rows=3, vectors=3)),
)


@pytest.fixture
def device(machine: Machine) -> Found:
    return machine.device


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sizes that were searched for, which always finds FOUND."""
    made: list[str] = []

    def searched(device: Found, base: object, size: str) -> Forms:
        made.append(size)
        return FOUND

    monkeypatch.setattr(tuning, "search", searched)
    return made


def test_classes_of_height_and_size() -> None:
    assert [height_class(rows) for rows in (1, 2, 8, 9, 32, 33, 500)] == [0, 1, 1, 2, 2, 3, 3]
    assert size_class(128, 128) == "small" and size_class(784, 256) == "large"


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_a_search_finds_candidates(device: Found, seconds: float) -> None:
    """Without time, the likeliest ones."""
    found, among = search(device, CPU_FORM, "small", seconds), candidates(device, CPU_FORM)
    for height, form in enumerate(found.products):
        assert form in (among.of(height) if seconds else among.of(height)[:1])
    assert found.gradient in (among.gradient if seconds else among.gradient[:1])


def test_whether_phases_are_launched_apart_is_measured(device: Found) -> None:
    """Where nothing is measured, all phases are one launch."""
    assert all(type(each) is bool for each in search(device, CPU_FORM, "small", 0.5).apart)
    assert search(device, SINGLE_FORM, "small", 0.0).apart == (False,) * 4


def test_local_memory_is_used_where_there_is_enough(device: Found) -> None:
    gpu = replace(device, kind="gpu", largest_group=1024, local_memory=48 << 10)
    assert any(form.product.local for form in candidates(gpu, GPU_FORM).more)
    for small in (replace(gpu, largest_group=1), replace(gpu, local_memory=1 << 10)):
        among = candidates(small, SINGLE_FORM)
        for forms in (among.single, among.more, among.gradient):
            assert forms and not any(form.product.local for form in forms)
    assert not fits(replace(gpu, largest_group=64), GPU_FORM)


def test_what_was_measured_is_kept(device: Found, searches: list[str], tmp_path: Path) -> None:
    path = tmp_path / "cache" / "forms.json"
    first = Tuner(device, CPU_FORM, path)
    assert first.forms(128, 128) == FOUND == first.forms(100, 128) and searches == ["small"]
    assert first.forms(784, 784) == FOUND and searches == ["small", "large"]
    assert Tuner(device, CPU_FORM, path).forms(128, 128) == FOUND and searches == ["small", "large"]
    assert [each.name for each in path.parent.iterdir()] == ["forms.json"]  # nothing temporary is left


@pytest.mark.parametrize("change", [{"driver": "another"}, {"name": "another"}])
def test_another_device_or_driver_is_measured(
    device: Found, searches: list[str], tmp_path: Path, change: dict[str, str]
) -> None:
    path = tmp_path / "forms.json"
    Tuner(device, CPU_FORM, path).forms(128, 128)
    Tuner(replace(device, **change), CPU_FORM, path).forms(128, 128)
    assert searches == ["small", "small"] and len(json.loads(path.read_text())) == 2


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "\x00\xff", "null"])
def test_a_damaged_file_is_measured_again(
    device: Found, searches: list[str], tmp_path: Path, text: str
) -> None:
    path = tmp_path / "forms.json"
    path.write_text(text)
    tuner = Tuner(device, CPU_FORM, path)
    with pytest.warns(RuntimeWarning, match="cannot be read"):
        assert tuner.forms(128, 128) == FOUND
    assert tuner.notes and searches == ["small"]
    assert Tuner(device, CPU_FORM, path).forms(128, 128) == FOUND and searches == ["small"]  # mended


@pytest.mark.parametrize(
    "entry",
    [
        3,
        {},
        {"products": [], "gradient": {}},
        {"products": "rows vectors local group".split(), "gradient": None},
    ],
)
def test_a_damaged_entry_is_measured_again(
    device: Found, searches: list[str], tmp_path: Path, entry: object
) -> None:
    path = tmp_path / "forms.json"
    tuner = Tuner(device, CPU_FORM, path)
    path.write_text(json.dumps({tuner._key("small"): entry, "of another device": 1}))
    with pytest.warns(RuntimeWarning, match="is damaged"):
        assert tuner.forms(128, 128) == FOUND
    assert "of another device" in json.loads(path.read_text())


@pytest.mark.parametrize("change", [{"rows": 0}, {"vectors": 1000}, {"rows": "8"}, {"local": 1}, {"x": 1}])
def test_impossible_numbers_are_measured_again(
    device: Found, searches: list[str], tmp_path: Path, change: dict[str, object]
) -> None:
    path = tmp_path / "forms.json"
    Tuner(device, CPU_FORM, path).forms(128, 128)
    kept = json.loads(path.read_text())
    next(iter(kept.values()))["products"][2]["product"].update(change)
    path.write_text(json.dumps(kept))
    with pytest.warns(RuntimeWarning, match="is damaged"):
        assert Tuner(device, CPU_FORM, path).forms(128, 128) == FOUND
    assert searches == ["small", "small"]


def test_a_file_that_cannot_be_written_is_said_once(
    device: Found, searches: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    tuner = Tuner(device, CPU_FORM, tmp_path / "file" / "forms.json")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert tuner.forms(128, 128) == FOUND == tuner.forms(784, 784)
    assert len(caught) == 1 and searches == ["small", "large"]


def test_a_read_only_folder(
    device: Found, searches: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated: to root, no folder is read-only."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tuning.tempfile, "mkstemp", refuse)
    tuner = Tuner(device, CPU_FORM, tmp_path / "forms.json")
    with pytest.warns(RuntimeWarning, match="cannot be written .Permission denied."):
        assert tuner.forms(128, 128) == FOUND
    assert not list(tmp_path.iterdir())


WRITER = """
import sys
from pathlib import Path
from types import SimpleNamespace
from amphw.opencl import tuning
from amphw.opencl.codegen.forms import CPU_FORM
found = tuning.Forms((CPU_FORM,) * 4, CPU_FORM)
tuning.search = lambda *given: found
device = SimpleNamespace(platform="p", platform_version="1", name=sys.argv[2], driver="d")
for _ in range(100):
    tuner = tuning.Tuner(device, CPU_FORM, Path(sys.argv[1]))
    assert tuner.forms(128, 128) == found and not tuner.notes, tuner.notes
    tuner._keep("large", found)
"""


def test_processes_may_share_the_file(tmp_path: Path) -> None:
    """Whoever writes last wins; nobody ever reads half a file."""
    path = tmp_path / "forms.json"
    command = [sys.executable, "-W", "error", "-c", WRITER, str(path)]
    running = [subprocess.Popen([*command, name]) for name in ("one", "two")]
    assert [process.wait(60) for process in running] == [0, 0]
    assert json.loads(path.read_text())
