"""`amphw train --carrier ray`, `amphw ranks` and `amphw ledger`: what is refused, and what is shown."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tests.replicas.elastic.jobs import Job
from tests.replicas.elastic.test_members import slowly

RAY = ["train", "list-reduction", "--ranks", "2", "--carrier", "ray"]
AKO = ["--set", "replicas.strategy=ako"]


def test_what_members_that_come_and_go_cannot_do_is_refused(amphw, tmp_path: Path) -> None:
    for arguments, why in (
        ([], "replicas.strategy=hybrid has places where all ranks meet"),
        ([*AKO, "--restarts", "2"], "--hosts, --restarts and --fewer are for ranks that all end"),
        ([*AKO, "--set", "replicas.accumulate=false"], "replicas.accumulate=false loses gradients"),
        ([*AKO, "--set", "replicas.apply=mean", "--set", "mode=pipeline"], "leave replicas.apply out"),
        ([*AKO, "--set", "replicas.bandwidth=1Gb/s"], "replicas.bandwidth chooses"),
        ([*AKO, "--set", "live_valid=2"], "train.live_valid validates beside training"),
    ):
        done = amphw(*RAY, "--out", str(tmp_path / "run"), *arguments)
        assert done.exit_code == 1 and why in done.stderr, done.stderr
        assert not (tmp_path / "run").exists()


def test_without_ray_the_extra_is_named(amphw, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else found(name, *rest)
    )
    for command in ([*RAY, *AKO], ["join", "127.0.0.1:6379"]):
        done = amphw(*command)
        assert done.exit_code == 1 and "pip install 'amphw[elastic]'" in done.stderr


def test_a_minimum_is_for_members_that_come_and_go(amphw) -> None:
    done = amphw("train", "list-reduction", "--minimum", "2")
    assert done.exit_code == 1 and "--minimum is for members that come and go" in done.stderr


def test_members_and_the_ledger_of_a_run_are_shown(amphw, tmp_path: Path) -> None:
    with Job(tmp_path, 2) as job:
        for _ in range(2):
            job.start(slowly)
    (tmp_path / "config.toml").write_text("")  # what marks a run's folder
    shown = amphw("ranks", str(tmp_path))
    assert shown.exit_code == 0 and "0.0" in shown.stdout and "rounds" in shown.stdout
    told = json.loads(amphw("ranks", str(tmp_path), "--json").stdout)
    assert [each["state"] for each in told["members"]] == ["left", "left"] and told["ended"] == "epochs"
    ledger = json.loads(amphw("ledger", str(tmp_path), "--json").stdout)
    assert (ledger["lost"], ledger["doubled"], ledger["instances"]) == (0, 0, 272)
    assert "instances that count" in amphw("ledger", str(tmp_path)).stdout


def test_a_ledger_with_a_line_too_many_fails(amphw, tmp_path: Path) -> None:
    with Job(tmp_path, 2) as job:
        for _ in range(2):
            job.start(slowly)
    (tmp_path / "config.toml").write_text("")
    path = next(
        path for path in (tmp_path / "members").glob("*/ledger-0.jsonl") if '"from"' in path.read_text()
    )
    line = next(line for line in path.read_text().splitlines() if '"from"' in line and "[0,0]," not in line)
    with open(path, "a") as file:
        file.write(line + "\n")
    done = amphw("ledger", str(tmp_path))
    assert done.exit_code == 1 and "twice, rounds" in done.stdout


def test_a_run_without_such_members_has_no_ledger(amphw, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    done = amphw("ledger", str(tmp_path))
    assert done.exit_code == 1 and "is not the run of a job with members that come and go" in done.stderr
