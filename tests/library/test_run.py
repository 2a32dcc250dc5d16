"""What a run has: records, predictions, parameters, gradients; saved and loaded."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import amphw
from amphw import frontend as fe
from amphw.frontend.source import FrontendError
from amphw.host.checkpoint import CheckpointError
from amphw.host.prediction import PredictionError
from amphw.host.progress import LiveStats
from amphw.host.run_folder import RunFolderError
from amphw.ir.errors import InstanceError
from amphw.library import run as library_run
from amphw.library.notebook import NotebookProgress, shows
from amphw.library.run import RunError
from amphw.models.base import ModelError
from tests.library.parity import QUIET, SPEC, instances, model


@pytest.fixture(scope="module")
def run() -> amphw.Run:
    return amphw.train(model(), instances(300), spec=SPEC, **QUIET)


def same(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    for node, values in one.items():
        for name, value in values.items():
            np.testing.assert_array_equal(value, other[node][name], err_msg=f"{node}.{name}")


def test_predictions_are_in_the_order_of_the_instances_and_need_no_answers(run: amphw.Run) -> None:
    data = instances(20, seed=3)
    found = run.predict(data)
    bare = run.predict([{"bits": x["bits"]} for x in data])
    assert [f["prediction"].tolist() for f in found] == [f["prediction"].tolist() for f in bare]
    assert {f["prediction"].shape for f in found} == {(1,)}
    for k in (0, 7):
        loss = run.outputs(data[k])["loss"]
        assert found[k]["prediction"][0] == loss["prediction"][0, 0]
    assert run.predict([]) == []
    with pytest.raises(InstanceError, match="instance 1: bits is missing"):
        run.predict([data[0], {"odd": 1}])
    with pytest.raises(RunError, match=r"predict\(\[instance\]\)"):
        run.predict(data[0])
    columns = {"bits": [x["bits"].tolist() for x in data]}
    assert [f["prediction"].tolist() for f in run.predict(columns)] == [
        f["prediction"].tolist() for f in found
    ]
    assert run.predict(['{"bits": [1, 0]}'])[0].keys() == {"prediction"}


def test_a_prediction_is_the_same_on_another_device(run: amphw.Run) -> None:
    data = instances(10, seed=4)
    one, other = run.predict(data), run.predict(data, device="reference")
    assert [f["prediction"].tolist() for f in one] == [f["prediction"].tolist() for f in other]


def test_a_device_stays_loaded_between_predictions(
    run: amphw.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    opened = library_run.opened

    def counted(*about: Any) -> Any:
        made.append(opened(*about))
        return made[-1]

    monkeypatch.setattr(library_run, "opened", counted)
    data = instances(5, seed=5)
    again = amphw.load(run.save(tmp_path / "run"))
    first = [f["prediction"].tolist() for f in again.predict(data)]
    assert [again.predict([x])[0]["prediction"].tolist() for x in data] == first
    assert again.evaluate(data) == again.evaluate(data)
    assert len(made) == 1
    again.predict(data, device="reference")
    assert len(made) == 2, "another device takes its place"
    again.close()
    again.predict(data)
    assert len(made) == 3
    best = again.checkpoint
    best.write_bytes((again.folder / "checkpoint.safetensors").read_bytes())
    assert again.predict(data)[0].keys() == {"prediction"}
    assert len(made) == 4, "the file has other parameters"


def test_a_checkpoint_that_is_gone_is_named(tmp_path: Path) -> None:
    run = amphw.train(model(), instances(20), spec=SPEC, out=tmp_path / "run", **QUIET)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(CheckpointError, match="check the path"):
        run.predict(instances(1))


def test_a_figure_that_means_nothing_does_not_stop_a_prediction() -> None:
    """Without its answer the loss is infinite, and what is reported beside it is right."""
    top = fe.Linear(1)

    def model(x: Any) -> None:
        p = top(x.x)
        fe.loss(fe.absolute(p - x.y) / x.y, p=p)

    spec = fe.Record(x=fe.Floats(2), y=fe.Floats(1))
    data = [{"x": [0.5, -1.0], "y": [2.0]}] * 8
    run = amphw.train(model, data, spec=spec, **QUIET)
    (found,) = run.predict([{"x": [0.5, -1.0]}])
    assert np.isfinite(found["p"]).all()
    with pytest.raises(PredictionError, match="the answer that was given is beyond what the loss allows"):
        run.predict([{"x": [0.5, -1.0], "y": [0.0]}])


def test_a_device_that_computes_nothing_predicts_nothing(run: amphw.Run) -> None:
    with pytest.raises(RunError, match="the device null computes no outputs"):
        run.predict(instances(2), device="null")


def test_a_device_that_failed_is_not_used_again(run: amphw.Run) -> None:
    data = instances(5, seed=5)
    expected = [f["prediction"].tolist() for f in run.predict(data)]
    wrong = run._model.compiled(run.config.model).encode(data[0])  # type: ignore[attr-defined]
    wrong.tables.clear()
    with pytest.raises(InstanceError):
        run.predict([wrong])
    assert [f["prediction"].tolist() for f in run.predict(data)] == expected


def test_evaluation_is_the_mean_over_rows(run: amphw.Run) -> None:
    data = instances(30, seed=6)
    losses = [run.outputs(x)["loss"]["loss"][0, 0] for x in data]
    assert run.evaluate(data)["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert run.evaluate(iter(data)) == run.evaluate(data)
    with pytest.raises(InstanceError, match="instance 0: odd is missing"):
        run.evaluate([{"bits": [1]}])


def test_gradients_are_those_that_finite_differences_find(run: amphw.Run) -> None:
    instance = instances(1, seed=7)[0]
    compiled = fe.compile(model(), SPEC)
    values = run.parameters
    found = run.gradients(instance)
    same(found, compiled.gradients(instance, values))
    for node, name, at in (("head", "b", (0,)), ("cell", "Wi", (1, 3)), ("embed", "E", (0, 2))):
        step = np.zeros_like(values[node][name], np.float64)
        step[at] = 1e-3

        def loss(sign: int, node: str = node, name: str = name, step: np.ndarray = step) -> float:
            moved = {**values, node: {**values[node], name: values[node][name] + sign * step}}
            return float(compiled.outputs(instance, moved)["loss"]["loss"].sum())

        slope = (loss(1) - loss(-1)) / 2e-3
        assert found[node][name][at] == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_changing_parameters_changes_nothing(run: amphw.Run) -> None:
    before = run.parameters
    run.parameters["head"]["W"][:] = 0
    same(run.parameters, before)


def test_a_run_is_saved_and_loaded_without_its_source(run: amphw.Run, tmp_path: Path) -> None:
    data = instances(12, seed=8)
    saved = run.save(tmp_path / "saved")
    loaded = amphw.load(saved)
    same(loaded.parameters, run.parameters)
    assert loaded.predict(data)[0].keys() == run.predict(data)[0].keys()
    assert loaded.evaluate(data) == run.evaluate(data)
    assert [r.epoch for r in loaded.records] == [1, 2] and loaded.summary.epochs == 2
    assert loaded.report.is_file()
    with pytest.raises(amphw.AmphwError, match="loaded without data"):
        loaded.evaluate()
    with pytest.raises(RunFolderError, match="not empty"):
        run.save(saved)
    (saved / "model.json").write_text('{"format": 99}')
    with pytest.raises(FrontendError, match="format 99"):
        amphw.load(saved)
    (saved / "model.json").write_text('{"format": 1}')
    with pytest.raises(FrontendError, match="the stored model is damaged"):
        amphw.load(saved)


def test_runs_of_the_command_line_are_loaded(tmp_path: Path) -> None:
    small = {"hidden": 8, "train_instances": 200, "valid_instances": 100, "target": None}
    amphw.train("list-reduction", out=tmp_path / "named", **QUIET, **small)
    assert len(amphw.load(tmp_path / "named").predict(["range 3 1 4"])) == 1
    source = Path(__file__).parents[2] / "examples" / "listops.py"
    few = {"train_instances": 40, "valid_instances": 20, "target": None}
    amphw.train(str(source), out=tmp_path / "file", **QUIET, **few)
    with pytest.raises(ModelError, match=r"model='FILE\.py'"):
        amphw.load(tmp_path / "file")
    assert amphw.load(tmp_path / "file", model=str(source)).parameters.keys()
    with pytest.raises(RunFolderError, match="there is no run folder"):
        amphw.load(tmp_path / "nowhere")


def test_a_run_without_a_folder_leaves_nothing_behind() -> None:
    run = amphw.train(model(), instances(30), spec=SPEC, **QUIET)
    folder, latest = run.folder, run.latest()
    del run
    assert folder.exists(), "the same run with other parameters holds it"
    del latest
    assert not folder.exists()


def test_history_is_a_data_frame_of_the_records(run: amphw.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    frame = run.history
    assert isinstance(frame, pandas.DataFrame) and list(frame["epoch"]) == [1, 2]
    assert frame["valid_accuracy"][1] == run.records[1].valid["accuracy"]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(RunError, match=r"amphw\[notebook\]"):
        run.history  # noqa: B018


@pytest.mark.usefixtures("drawn")
def test_a_plot_and_what_a_notebook_shows(run: amphw.Run) -> None:
    figure = run.plot()
    assert figure.axes[0].get_ylabel() == "validation accuracy"
    assert run.plot("loss").axes[0].get_ylabel() == "validation loss"
    with pytest.raises(RunError, match=r"the run has loss, accuracy"):
        run.plot("precision")
    shown = run._repr_html_()
    ElementTree.fromstring(f"<div>{shown}</div>")
    assert "validation accuracy" in shown and "data:image/svg+xml" in shown and "<script" not in shown
    ElementTree.fromstring(fe.compile(model(), SPEC)._repr_svg_())
    assert "2 epochs, validation: loss" in repr(run)


def test_without_imported_layers_there_is_no_way_back_to_pytorch(run: amphw.Run) -> None:
    with pytest.raises(FrontendError, match=r"`\.parameters` has all values"):
        run.to_torch()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What a notebook is told to draw."""
    drawn = list[str]()
    monkeypatch.setattr("amphw.library.train.shows", lambda: drawn.append)
    yield drawn


def test_progress_goes_to_the_output_of_a_cell_of_marimo(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = list[str]()
    fake = SimpleNamespace(
        running_in_notebook=lambda: True, Html=str, output=SimpleNamespace(replace=drawn.append)
    )
    monkeypatch.setitem(sys.modules, "marimo", fake)
    show = shows()
    assert show is not None
    show("<b>one</b>")
    assert drawn == ["<b>one</b>"]
    fake.running_in_notebook = lambda: False  # a script that imports it
    assert shows() is None


def test_progress_is_drawn_twice_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is drawn has no script, and looks the same where tables have no style, as in marimo."""
    now, drawn = [0.0], list[str]()
    progress = NotebookProgress(drawn.append, 3, "parity", clock=lambda: now[0])
    with progress:
        for done in range(100):
            now[0] += 0.1
            progress.update(LiveStats(1, done, 100, 0.5))
    assert 15 <= len(drawn) <= 25 and "<progress" in drawn[0] and "<progress" not in drawn[-1]
    assert not any("<script" in each for each in drawn)


def test_progress_in_a_notebook_is_a_table_that_is_drawn_over(shown: list[str]) -> None:
    amphw.train(model(), instances(200), spec=SPEC, **{**QUIET, "progress": True, "epochs": 3})
    for html in shown:
        ElementTree.fromstring(f"<div>{html}</div>")
    assert shown[-1].count("<tr>") == 4 and "<progress" not in shown[-1]
    assert "memory:" in shown[-1] and "padding" in shown[-1] and "<script" not in shown[-1]


def test_a_run_may_do_without_its_report(capsys: pytest.CaptureFixture[str]) -> None:
    told = amphw.train(model(), instances(40), spec=SPEC, epochs=1)
    assert told.report.exists()
    assert "writing the report, the trace of " in capsys.readouterr().err
    plain = amphw.train(model(), instances(40), spec=SPEC, epochs=1, report=False)
    assert "report" not in capsys.readouterr().err
    assert not any(plain.folder.glob("*.svg"))
    with pytest.raises(RunError, match="report=False"):
        _ = plain.report
    assert plain.plot() is not None
