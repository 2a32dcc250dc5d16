"""The tutorial notebooks run from their first cell to their last, each in a kernel of its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


EACH = [
    pytest.param(
        path, id=path.stem, marks=pytest.mark.hardware if "fpga" in path.stem else pytest.mark.thorough
    )
    for path in NOTEBOOKS
]
"""One builds a circuit."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", EACH)
def test_a_notebook_runs_to_its_end(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "import torch" in path.read_text(encoding="utf-8"):
        pytest.importorskip("torch")
    import nbclient
    import nbformat

    # As where an environment is activated: cells call `amphw`.
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    found = nbformat.read(path, as_version=4)
    nbformat.validate(found)
    client = nbclient.NotebookClient(found, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    shown = [output for cell in found.cells for output in cell.get("outputs", ())]
    data = [output["data"] for output in shown if "data" in output]
    # A drawing that a page without scripts shows, too, is a picture in HTML.
    drawn = ("<svg", "data:image/svg+xml")
    assert any("image/svg+xml" in each or any(d in each.get("text/html", "") for d in drawn) for each in data)
    assert any("<table" in each.get("text/html", "") for each in data)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_what_it_has_shown(path: Path) -> None:
    """So that what changes in it is what somebody has written."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells if "outputs" in cell)
    assert len(cells) > 5
