"""The lock of a run folder: one holder at a time, none after its process, whatever ends that."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from amphw.host import run_lock
from amphw.host.run_folder import RunFolder, RunFolderError, WriteError
from amphw.host.run_lock import LOCK, locked

HOLD = """
import sys
from pathlib import Path
from amphw.host.run_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_goes_with_its_process_however_that_ends(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(BlockingIOError, match=f"process {holder.pid}"), locked(tmp_path):
        pass
    holder.kill()
    holder.communicate()
    with locked(tmp_path):
        assert (tmp_path / LOCK).read_text() == f"{os.getpid()}\n"


def test_a_lock_is_free_again_after_its_block(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(tmp_path), pytest.raises(BlockingIOError), locked(tmp_path):
            pass


def test_a_holder_that_is_not_told_is_another_process(tmp_path: Path) -> None:
    with locked(tmp_path):
        (tmp_path / LOCK).write_text("")
        with pytest.raises(BlockingIOError, match="another process"), locked(tmp_path):
            pass


def test_a_file_system_without_locks_does_not_stop_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(run_lock, "_take", refuse)
    with locked(tmp_path):
        pass


def test_a_folder_is_held_by_one_run(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "rnn")
    with folder.held() as held:
        assert held is folder
        with pytest.raises(RunFolderError, match="a run is under way in .*wait for its end, or stop it"):
            RunFolder.open(folder.path).held().__enter__()


def test_a_lock_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / LOCK).mkdir()
    with (
        pytest.raises(WriteError, match=r"cannot write .*\.lock: Is a directory"),
        RunFolder(tmp_path).held(),
    ):
        pass
