"""`amphw compare`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def trained() -> dict[str, Path]:
    """Where the runs lie that the first test trained, for the others to copy."""
    return {}


@pytest.fixture
def runs(amphw, tiny, trained, tmp_path) -> list[str]:
    for name, seed in (("a/run", 1), ("b/run", 2)):
        if name in trained:
            shutil.copytree(trained[name], tmp_path / name)
            continue
        done = amphw("train", "list-reduction", *tiny, "--set", f"seed={seed}", "--out", name)
        assert done.exit_code == 0, done.stderr
        trained[name] = tmp_path / name
    return ["a/run", "b/run"]


def test_runs_are_compared_on_one_page(amphw, runs, tmp_path) -> None:
    done = amphw("compare", *runs, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found["runs"]) == ["a/run", "b/run"]
    assert found["runs"]["a/run"]["epochs"] == 1 and "history" not in found["runs"]["a/run"]
    page = (tmp_path / found["file"]).read_text()
    assert "list-reduction: 2 runs" in page and page.count("<figure>") == 2
    assert "train.seed" in page and "a/run" in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a/run"], "takes two runs or more"),
        (["a/run", "a/run"], "names a folder twice"),
        (["a/run", "b/run", "--out", "page.pdf"], "ends in .html"),
        (["a/run", "nowhere"], "there is no run folder nowhere"),
    ],
)
def test_each_mistake_is_one_message(amphw, runs, arguments, said) -> None:
    done = amphw("compare", *arguments)
    assert done.exit_code in (1, 2)
    assert said in done.stderr
