"""The sources of a model's units, as files."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from amphw.ir.errors import AmphwError
from amphw.models import get_model
from amphw.opencl.dump import _free, dump
from amphw.opencl.forms import CPU_FORM


@pytest.fixture
def graph():
    model = get_model("list-reduction")
    from amphw.host.config import resolve

    return model.graph(resolve(model.config, model.defaults, None, ["hidden=8"]).model)


@pytest.fixture(autouse=True)
def generator(monkeypatch) -> None:
    """Writes the unit's name and its parameters, in place of kernels."""
    module = ModuleType("amphw.opencl.generate")

    def generate(name, tiled, params, form):
        return SimpleNamespace(text=f"{name}: {', '.join(p.name for p in params)}\n")

    module.generate = generate
    monkeypatch.setitem(sys.modules, "amphw.opencl.generate", module)


def test_a_file_per_unit_that_computes(graph, tmp_path) -> None:
    written = dump(graph, tmp_path / "deep" / "out", CPU_FORM)
    assert sorted((tmp_path / "deep" / "out").iterdir()) == sorted(written)
    texts = [path.read_text() for path in written]
    assert "E, W, b" in "".join(texts)
    assert all(text.startswith(f"{path.stem}:") for path, text in zip(written, texts, strict=True))


def test_names_that_files_may_not_have_are_told_apart(tmp_path) -> None:
    path = tmp_path / "a_b.cl"
    assert [_free(path, taken).name for taken in ([], [path], [path, tmp_path / "a_b-2.cl"])] == [
        "a_b.cl",
        "a_b-2.cl",
        "a_b-3.cl",
    ]


def test_a_folder_that_cannot_be_made(graph, tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AmphwError) as caught:
        dump(graph, tmp_path / "file", CPU_FORM)
    assert str(caught.value) == f"{tmp_path}/file cannot be written (File exists). Give another folder."
