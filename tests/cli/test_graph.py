"""`amphw graph`."""

from __future__ import annotations

import json
import xml.etree.ElementTree as xml

from amphw.models import get_model


def test_text_goes_to_stdout(amphw) -> None:
    done = amphw("graph", "list-reduction", "--set", "hidden=8")
    assert done.exit_code == 0
    assert done.stdout.startswith("graph list-reduction\n")
    assert "PPT cell in time owns E[14, 8], W[16, 8], b[8]" in done.stdout
    assert done.stderr == ""


def test_fused_has_fewer_nodes_and_the_same_parameters(amphw) -> None:
    fine, fused = (amphw("graph", "list-reduction", *flag).stdout for flag in ([], ["--fused"]))
    assert fused.count("\n") < fine.count("\n")
    assert fused.count(" owns ") == fine.count(" owns ")
    assert "NPT relu" in fine and "NPT relu" not in fused


def test_passes_run_in_their_order(amphw) -> None:
    tiled = amphw("graph", "mnist", "--set", "width=64", "--pass", "fuse", "--pass", "tile=2")
    assert tiled.exit_code == 0, tiled.stderr
    assert "PPT linear1_1 owns W[784, 32], b[32]" in tiled.stdout and "NPT relu1" not in tiled.stdout
    folded = amphw("graph", "list-reduction", "--set", "hidden=8", "--pass", "fold")
    assert "owns b[8], E_W[14, 8], W_rest[8, 8]" in folded.stdout


def test_a_pass_that_does_not_exist_or_apply_is_refused(amphw) -> None:
    done = amphw("graph", "mnist", "--pass", "melt")
    assert done.exit_code == 1 and "there is no pass 'melt'; there are: fuse, fold" in done.stderr
    done = amphw("graph", "mnist", "--pass", "fold")
    assert done.exit_code == 1 and "there is nothing to fold" in done.stderr


def test_each_format_is_written(amphw, tmp_path) -> None:
    for name in ("g.html", "g.svg", "g.json", "g.txt"):
        done = amphw("graph", "mnist", "--out", name)
        assert done.exit_code == 0, done.stderr
        assert done.stdout == ""
        assert f"wrote {name}" in done.stderr
    assert xml.parse(tmp_path / "g.svg").getroot().tag.endswith("svg")
    assert "<title>Graph of mnist</title>" in (tmp_path / "g.html").read_text()
    model = get_model("mnist")
    text = (tmp_path / "g.json").read_text()
    assert all(f'"{node}"' in text for node in model.graph(model.config()).nodes)
    json.loads(text)
    assert (tmp_path / "g.txt").read_text() == amphw("graph", "mnist").stdout


def test_a_file_of_another_kind_is_refused_before_anything_is_built(amphw) -> None:
    done = amphw("graph", "mnist", "--out", "g.pdf")
    assert done.exit_code == 2
    assert "g.pdf: expected a file that ends in .html, .svg, .json, .txt" in done.stderr


def test_a_place_that_cannot_be_written_is_said_without_a_word_of_runs(amphw, tmp_path) -> None:
    (tmp_path / "file").touch()
    done = amphw("graph", "mnist", "--out", "file/g.svg")
    assert done.exit_code == 1
    assert "cannot write file/g.svg: " in done.stderr and "choose another place." in done.stderr
    assert "run folder" not in done.stderr


def test_a_setting_that_is_not_allowed_is_refused(amphw) -> None:
    done = amphw("graph", "mnist", "--set", "width=0")
    assert done.exit_code == 1
    assert done.stderr == "amphw: --set width=0: [model]: width is 0, expected an integer of 1 or more.\n"
