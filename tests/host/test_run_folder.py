"""A run folder is claimed once, and a file in it is replaced whole or not at all."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from amphw.host import run_folder
from amphw.host.run_folder import ENVIRONMENT, RunFolder, RunFolderError, WriteError, write_atomic


def fail_with(code: int) -> Any:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def test_default_folder_is_named_by_model_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = RunFolder.create(None, "tree lstm/1"), RunFolder.create(None, "tree lstm/1")
    assert first.path.parent == Path("runs")
    assert first.path.name.startswith("tree-lstm-1-2")
    assert first.path != second.path


def test_environment_is_recorded(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a" / "b", "rnn")
    found = folder.read_json(ENVIRONMENT)
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert {"amphw", "numpy", "platform", "started"} <= set(found)
    assert found["cpu"]["count"] >= 1
    assert found["cpu"]["name"]
    known = "cpu family" in (info.read_text() if (info := Path("/proc/cpuinfo")).exists() else "")
    assert known == ("family" in found["cpu"]) == ("model" in found["cpu"])


def test_an_empty_folder_is_taken_and_a_run_is_not_written_over(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, "rnn")
    with pytest.raises(RunFolderError, match=r"already holds a run .*choose another run folder.*--resume"):
        RunFolder.create(tmp_path, "rnn")
    assert RunFolder.open(tmp_path).path == tmp_path


def test_a_file_is_not_a_run_folder(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(RunFolderError, match="x is a file, not a folder"):
        RunFolder.create(tmp_path / "x", "rnn")
    with pytest.raises(WriteError, match="a part of that path is a file"):
        RunFolder.create(tmp_path / "x" / "y", "rnn")


def test_opening_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="there is no run folder"):
        RunFolder.open(tmp_path / "absent")
    with pytest.raises(RunFolderError, match="holds no run"):
        RunFolder.open(tmp_path)


def test_json_is_strict_and_readable_again(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "rnn")
    path = folder.write_json("metrics.json", {"loss": math.nan, "name": "né", "list": (1, 2)})
    assert json.loads(path.read_text(encoding="utf-8")) == {"loss": None, "name": "né", "list": [1, 2]}
    path.write_text("{")
    with pytest.raises(RunFolderError, match=r"metrics\.json is not JSON"):
        folder.read_json("metrics.json")
    with pytest.raises(RunFolderError, match=r"cannot read .*summary\.json"):
        folder.read_json("summary.json")


def test_text_in_a_subfolder(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "rnn")
    assert folder.write_text("notes/a.txt", "ä\n").read_bytes() == "ä\n".encode()


@pytest.mark.parametrize(
    ("code", "advice"),
    [(errno.ENOSPC, "free space on that disk"), (errno.EFBIG, "ulimit -f"), (errno.EIO, "check that disk")],
)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, advice: str, call: str
) -> None:
    path = tmp_path / "metrics.json"
    write_atomic(path, b"old")
    monkeypatch.setattr(os, call, fail_with(code))
    with pytest.raises(
        WriteError, match=r"cannot write .*metrics\.json: .*previous version is untouched"
    ) as caught:
        write_atomic(path, b"new")
    assert advice in str(caught.value)
    assert caught.value.errno == code
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["metrics.json"]


def test_an_interrupt_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "a", b"new")
    assert os.listdir(tmp_path) == []


def test_an_unsynced_directory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real, calls = tmp_path / "a", os.fsync, []

    def second_fails(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", second_fails)
    with pytest.raises(WriteError, match="was written, but its directory could not be synced"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_file_size_limit_of_the_system_keeps_the_old_file(tmp_path: Path) -> None:
    """The real thing: the kernel refuses the write half-way."""
    path = tmp_path / "metrics.json"
    write_atomic(path, b"old")
    script = textwrap.dedent("""
        import resource, sys
        from pathlib import Path
        from amphw.host.run_folder import WriteError, write_atomic
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            write_atomic(Path(sys.argv[1]), bytes(100_000))
        except WriteError as error:
            print(error)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert "metrics.json: File too large" in done.stdout
    assert "ulimit -f" in done.stdout
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["metrics.json"]


def test_of_two_runs_that_claim_a_folder_at_once_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen it empty before either wrote; here the second claims it while the first looks round."""
    root = tmp_path / "run"
    recorded = run_folder.environment()

    def slow() -> dict[str, object]:
        monkeypatch.setattr(run_folder, "environment", lambda: recorded)
        RunFolder.create(root, "rnn")
        return recorded

    monkeypatch.setattr(run_folder, "environment", slow)
    with pytest.raises(RunFolderError, match="already holds a run"):
        RunFolder.create(root, "rnn")
    kept = RunFolder.open(root).read_json("environment.json")
    assert kept.items() >= (recorded | {"model": "rnn"}).items()


def test_the_command_is_kept_without_the_programs_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/home/user/bin/amphw", "train", "rnn", "--set", "a=b c"])
    kept = RunFolder.create(tmp_path / "run", "rnn").read_json("environment.json")
    assert kept["command"] == "amphw train rnn --set 'a=b c'"


def test_the_command_names_no_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/user")
    monkeypatch.setattr("sys.argv", ["amphw", "train", "/home/user/mine.py", "--out", "/home/user/runs/a"])
    kept = RunFolder.create(tmp_path / "run", "mine").read_json("environment.json")
    assert kept["command"] == "amphw train '~/mine.py' --out '~/runs/a'"


def test_the_commit_is_that_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where amphw is installed, the repository around it says nothing of it."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    short = subprocess.run(
        [*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=True
    )
    monkeypatch.setattr(run_folder, "__file__", str(tmp_path / "amphw/host/run_folder.py"))
    assert run_folder.environment()["commit"] == short.stdout.strip()
    monkeypatch.setattr(run_folder, "__file__", str(tmp_path / "lib/site-packages/amphw/host/run_folder.py"))
    assert run_folder.environment()["commit"] == ""


def test_a_failed_claim_leaves_the_folder_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise WriteError("no space", None)

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "write_atomic", refuse)
        with pytest.raises(WriteError):
            RunFolder.create(tmp_path / "run", "rnn")
    RunFolder.create(tmp_path / "run", "rnn")


def test_an_abandoned_folder_is_free_again_and_a_found_one_is_kept(tmp_path: Path) -> None:
    made = RunFolder.create(tmp_path / "run", "rnn", "[train]\n")
    assert (made.path / "config.toml").read_text() == "[train]\n"
    assert made.model() == "rnn"
    RunFolder.open(made.path).abandon()
    assert made.file(ENVIRONMENT).exists()
    with made.held():
        made.abandon()
    assert not made.path.exists()
