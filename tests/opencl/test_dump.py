"""The sources of a model's units, as files."""

from __future__ import annotations

import pytest

from amphw.engine.lower import lower
from amphw.host.config import resolve
from amphw.ir.errors import AmphwError
from amphw.ir.passes import fuse
from amphw.models import get_model
from amphw.opencl.build import built
from amphw.opencl.dump import _free, dump
from amphw.opencl.forms import CPU_FORM, GPU_FORM, SINGLE_FORM
from amphw.opencl.platforms import found


@pytest.fixture
def graph():
    model = get_model("list-reduction")
    return model.graph(resolve(model.config, model.defaults, None, ["hidden=8"]).model)


@pytest.mark.parametrize("form", [CPU_FORM, GPU_FORM, SINGLE_FORM], ids=["cpu", "gpu", "single"])
def test_each_file_is_a_complete_program(graph, tmp_path, form) -> None:
    import pyopencl as cl

    written = dump(graph, tmp_path / "deep" / "out", form)
    assert sorted((tmp_path / "deep" / "out").iterdir()) == sorted(written)
    computing = [u.name for u in lower(fuse(graph)).units if u.behaviour.program is not None]
    assert [path.stem for path in written] == computing
    device = next(each for each in found() if each.pocl)
    context = cl.Context([device.handle])
    for path in written:
        program = built(cl, context, device, path.stem, path.read_text(encoding="utf-8"))
        assert f"{path.stem}_forward_0" in program.kernel_names.split(";")


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
