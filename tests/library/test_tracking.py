"""Trackers: what they are told, by whom they are found, and that training goes on without them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import amphw
from amphw.library import tracking
from amphw.library.tracking import TrackerError, tracker
from tests.library.parity import QUIET, SPEC, instances, model


class Notes:
    """Keeps what it is told."""

    def __init__(self, fails_at: str = "") -> None:
        self.told, self._fails_at = list[tuple[str, Any]](), fails_at

    def _note(self, what: str, *found: Any) -> None:
        self.told.append((what, found))
        if what == self._fails_at:
            raise OSError("the network is down")

    def begin(self, *found: Any) -> None:
        self._note("begin", *found)

    def epoch(self, *found: Any) -> None:
        self._note("epoch", *found)

    def end(self, *found: Any) -> None:
        self._note("end", *found)


def train(**settings: Any) -> amphw.Run:
    return amphw.train(model(), instances(60), spec=SPEC, **{**QUIET, **settings})


def test_a_tracker_is_told_of_the_whole_run() -> None:
    notes = Notes()
    run = train(track=[notes])
    assert [what for what, _ in notes.told] == ["begin", "epoch", "epoch", "end"]
    (name, settings, folder), (figures, record) = notes.told[0][1], notes.told[2][1]
    assert name == "parity" and settings["train.epochs"] == 2 and folder.path == run.folder
    assert record.epoch == 2 and figures["valid/accuracy"] == run.records[1].valid["accuracy"]
    assert notes.told[3][1][0].epochs == 2


def test_a_run_that_fails_is_ended_without_a_summary() -> None:
    def callback(epoch: amphw.Epoch) -> None:
        raise KeyError("mine")

    notes = Notes()
    with pytest.raises(KeyError):
        train(track=[notes], callbacks=[callback])
    assert notes.told[-1] == ("end", (None,))


@pytest.mark.parametrize("at", ["begin", "epoch", "end"])
def test_training_goes_on_without_a_tracker_that_fails(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    broken, fine = Notes(at), Notes()
    run = train(track=[broken, fine], progress=True)
    assert len(run.records) == 2 and len(fine.told) == 4
    assert broken.told[-1][0] == at, "it is told no more"
    assert "the tracker Notes has failed and is told no more: OSError" in capsys.readouterr().err


def test_an_unknown_tracker_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(TrackerError, match="no tracker 'tensorbord'; there are tensorboard, wandb, trackio"):
        train(track=["tensorbord"], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_tracker_whose_package_is_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tracking.BUILT_IN:
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(TrackerError, match=rf"pip install 'amphw\[{name}\]'"):
            tracker(name)


def test_packages_add_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", f"{__name__}:Notes", tracking.GROUP)
    broken = EntryPoint("broken", "nowhere:Tracker", tracking.GROUP)
    monkeypatch.setattr(tracking, "entry_points", lambda group: [point, broken])
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, ModuleType(__name__)))
    monkeypatch.setattr(sys.modules[__name__], "Notes", Notes, raising=False)
    assert isinstance(tracker("mine"), Notes)
    with pytest.raises(TrackerError, match=r"'broken' \(nowhere:Tracker\) cannot be made"):
        tracker("broken")
    with pytest.raises(TrackerError, match="trackio, mine, broken"):
        tracker("other")


@pytest.fixture(params=["wandb", "trackio"])
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What is called of a module with the functions that Weights & Biases and Trackio have in common."""
    found, module = [request.param], ModuleType(request.param)
    for name in ("init", "log", "finish"):
        setattr(module, name, lambda *a, _name=name, **k: found.append((_name, a, k)) or module)
    monkeypatch.setitem(sys.modules, request.param, module)
    yield found


def test_both_get_settings_figures_and_an_end(calls: list[Any], tmp_path: Path) -> None:
    name = calls[0]
    train(track=[name], out=tmp_path / "run")
    train(track=[name], out=tmp_path / "run", resume=True, epochs=3)
    (first, *rest), again = calls[1:5], calls[5]
    assert first[2]["project"] == "amphw" and first[2]["config"]["update.lr"] == 0.003
    assert [(each[0], each[2].get("step")) for each in rest] == [("log", 1), ("log", 2), ("finish", None)]
    assert rest[0][1][0]["valid/loss"] > 0
    assert {k: first[2].get(k) for k in ("name", "id")} == {k: again[2].get(k) for k in ("name", "id")}
    assert calls[6][2]["step"] == 3


def test_tensorboard_reads_what_is_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train(track=["tensorboard"], out=tmp_path / "run")
    read = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    read.Reload()
    found = read.Scalars("valid/loss")
    assert [each.step for each in found] == [record.instances for record in run.records]
    assert found[1].value == pytest.approx(run.records[1].valid["loss"])
