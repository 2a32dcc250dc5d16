"""`amphw train --track`."""

from __future__ import annotations

from amphw.library import tracking


def test_a_tracker_is_told_of_a_run_of_the_command_line(amphw, tiny, monkeypatch) -> None:
    told = []

    class Told:
        def begin(self, model, settings, folder):
            told.append((model, settings["train.epochs"], folder.path.name))

        def epoch(self, figures, record):
            told.append((record.epoch, sorted(figures)[:2]))

        def end(self, summary):
            told.append(summary.stopped_by)

    monkeypatch.setitem(tracking.BUILT_IN, "mine", Told)
    done = amphw("train", "list-reduction", *tiny, "--track", "mine", "--out", "run")
    assert done.exit_code == 0, done.stderr
    assert told == [("list-reduction", 1, "run"), (1, ["busy", "instances"]), "epochs"]
    done = amphw("train", "list-reduction", *tiny, "--track", "other", "--out", "other")
    assert done.exit_code == 1 and "there is no tracker 'other'; there are tensorboard" in done.stderr
    done = amphw("train", "list-reduction", *tiny, "--track", "mine", "--seeds", "2")
    assert done.exit_code == 2 and "--track" in done.stderr
