"""Ctrl-C: once stops in good order and can be gone on from, twice aborts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amphw.library.interrupt import stopping

LONG = ["--set", "epochs=100000", "--set", "trace=false"]


@pytest.fixture
def running(program, environment, tiny, tmp_path) -> Iterator[subprocess.Popen[str]]:
    """A run that would last for days, once its first epoch is over and saved."""
    command = [*program, "train", "list-reduction", *tiny, *LONG, "--out", "run", "--json"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.strip().startswith("2/"):  # a row of the table: the first epoch is saved by now
            break
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_once_saves_and_says_how_to_go_on(running, amphw, tmp_path) -> None:
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=60)
    assert running.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert "amphw train list-reduction --device cpu --resume run" in stderr
    summary = json.loads(stdout)
    assert summary["stopped_by"] == "interrupt" and summary["messages"]["lost"] == 0
    done = amphw(
        "train", "list-reduction", "--resume", "run", "--set", f"epochs={summary['epochs'] + 1}", "--json"
    )
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["epochs"] == summary["epochs"] + 1


def test_twice_aborts_and_leaves_the_last_checkpoint(running, tmp_path) -> None:
    checkpoints = set(Path(tmp_path / "run").rglob("*.safetensors"))
    running.send_signal(signal.SIGINT)
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=60)
    assert running.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert checkpoints and all(path.stat().st_size for path in Path(tmp_path / "run").rglob("*.safetensors"))


def test_the_first_signal_asks_and_the_second_raises() -> None:
    asked = threading.Event()
    notes: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), stopping(asked.set, notes.append):
        os.kill(os.getpid(), signal.SIGINT)
        assert asked.wait(5)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    assert signal.getsignal(signal.SIGINT) is before
    assert "Ctrl-C again" in notes[0]


def test_a_lock_held_by_the_main_thread_does_not_stop_the_stop() -> None:
    """The handler runs between two instructions of the main thread, whatever lock that holds just then."""
    lock, stopped = threading.Lock(), threading.Event()

    def stop() -> None:
        with lock:
            stopped.set()

    with stopping(stop, lambda text: None):
        with lock:
            os.kill(os.getpid(), signal.SIGINT)
        assert stopped.wait(5)


def test_other_threads_are_left_alone() -> None:
    seen = []

    def work() -> None:
        with stopping(lambda: None, lambda text: None):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


def test_a_terminal_that_goes_away_saves_the_run(program, environment, tiny, tmp_path) -> None:
    """The real thing: a connection that breaks. Whatever is written from then on fails."""
    import fcntl
    import pty
    import termios

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*program, "train", "list-reduction", *tiny, *LONG, "--out", "run"],
        cwd=tmp_path,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    try:
        while not (tmp_path / "run" / "checkpoint.safetensors").exists():
            assert os.read(ours, 1 << 16)
        os.close(ours)
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
        process.wait()
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["stopped_by"] == "interrupt"


def test_a_hangup_asks_as_ctrl_c_does() -> None:
    asked = threading.Event()
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have it ignored
    try:
        with stopping(asked.set, lambda text: None):
            os.kill(os.getpid(), signal.SIGHUP)
            assert asked.wait(5)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("first", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_hangup_never_aborts(first: signal.Signals) -> None:
    """A shell sends it, and the system again; a service manager sends it after SIGTERM."""
    asked = threading.Event()
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with stopping(asked.set, lambda text: None):
            os.kill(os.getpid(), first)
            assert asked.wait(5)
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.05)  # an exception would come here
    finally:
        signal.signal(signal.SIGHUP, before)


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping(lambda: pytest.fail("asked to stop"), lambda text: None):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
