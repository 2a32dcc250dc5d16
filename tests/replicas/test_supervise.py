"""Ranks that amphw starts itself: signals, ranks and launchers that are killed, and other machines."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from amphw.host.checkpoint import load_checkpoint
from amphw.host.checkpointing import CHECKPOINT
from amphw.replicas.hosts import LAUNCHER
from tests.daily import daily
from tests.replicas.test_hosts import stand_in

ROOT = Path(__file__).resolve().parents[2]
needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or not (Path(sys.executable).parent / "mpiexec").exists(),
    reason="needs the extra mpi",
)
pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
SMALL = ["hidden=8", "batch=10", "train_instances=200", "valid_instances=50", "target=none", "trace=false"]
SETTINGS = [*SMALL, "mode=pipeline", "workers=1"]
TRAIN = ["train", "list-reduction", *(word for setting in SETTINGS for word in ("--set", setting))]
MPI, FOR_EVER = ["--ranks", "2", "--carrier", "mpi"], ["--set", "epochs=100000"]
SOON = 90.0
"""Seconds within which something has to happen, most of which is Python's start."""
MARK = "AMPHW_TESTED"


class Run:
    """An `amphw train` whose processes, and no others, have the mark in their environment."""

    def __init__(self, folder: Path, *arguments: str):
        self.folder = folder / "run"
        self._mark = f"{MARK}={folder}".encode()
        command = [sys.executable, "-m", "amphw.cli", *TRAIN, "--out", "run", *arguments]
        pipe, environment = subprocess.PIPE, os.environ | {MARK: str(folder)}
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True
        )

    def trains(self) -> None:
        """Wait until an epoch is saved."""
        end = time.monotonic() + SOON
        while not (self.folder / CHECKPOINT).exists():
            assert self.process.poll() is None and time.monotonic() < end, self.process.communicate()
            time.sleep(0.05)

    def processes(self, chosen: Callable[[dict[str, str], str], bool] = lambda env, name: True) -> list[int]:
        """chosen: by their environment and the program's name."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended, or is somebody else's
                words = (entry / "environ").read_bytes().split(b"\0")
                if self._mark in words:
                    pairs = (word.decode(errors="replace").partition("=") for word in words)
                    environment = {name: value for name, _, value in pairs}
                    if chosen(environment, (entry / "comm").read_text().strip()):
                        found.append(int(entry.name))
        return found

    def kill(self, chosen: Callable[[dict[str, str], str], bool]) -> None:
        pids = self.processes(chosen)
        assert pids
        os.kill(pids[-1], signal.SIGKILL)

    def ends(self) -> tuple[int, str, str]:
        """-> exit code, stdout, stderr. Nothing is left of it."""
        out, err = self.process.communicate(timeout=SOON)
        end = time.monotonic() + SOON
        while left := self.processes():
            assert time.monotonic() < end, left
            time.sleep(0.05)
        return self.process.returncode, out, err

    def counters(self) -> dict[str, Any]:
        found: dict[str, Any] = load_checkpoint(self.folder / CHECKPOINT, None)[1]["counters"]
        return found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    started: list[Run] = []

    def start(*arguments: str) -> Run:
        started.append(Run(tmp_path, *arguments))
        return started[-1]

    yield start
    for each in started:
        for pid in each.processes():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        each.process.wait()


def rank(number: int) -> Callable[[dict[str, str], str], bool]:
    return lambda environment, name: environment.get("PMI_RANK") == str(number)


def program(name: str) -> Callable[[dict[str, str], str], bool]:
    """/proc has fifteen letters of it."""
    return lambda environment, found: found == name[:15]


def whole_epochs(counters: dict[str, Any], epochs: int) -> None:
    """Every instance of consecutive epochs was counted once."""
    assert counters["size"] == 200 * epochs and counters["forward"] == counters["backward"] > 0
    records = [(record["epoch"], record["instances"]) for record in counters["history"]]
    assert records == [(k, 200 * k) for k in range(1, epochs + 1)]


@needs_mpi
@pytest.mark.parametrize(("number", "fewer"), daily([(1, False)], [(0, True)]))
def test_a_killed_rank_is_started_again(run: Callable[..., Run], number: int, fewer: bool) -> None:
    epochs = ["--set", "epochs=60"]
    job = run(*MPI, *epochs, "--restarts", "2", *["--fewer"] * fewer, "--json")
    job.trains()
    job.kill(rank(number))
    code, out, err = job.ends()
    assert code == 0, err
    assert json.loads(out)["epochs"] == 60  # and MPICH's account of the kill is not on stdout
    assert json.loads(out).get("ranks", 1) == (1 if fewer else 2)
    assert f"a rank was lost: Killed (signal 9); going on with {'1 rank' if fewer else '2 ranks'} from" in err
    whole_epochs(job.counters(), 60)


@needs_mpi
@pytest.mark.parametrize("what", daily([rank(0)], [program("mpiexec"), program("hydra_pmi_proxy")]))
def test_without_restarts_a_kill_ends_the_run(run: Callable[..., Run], what: Any) -> None:
    job = run(*MPI, *FOR_EVER)
    job.trains()
    job.kill(what)
    code, out, err = job.ends()
    assert code not in (0, 1, 2, 130) and out == ""
    assert err.splitlines()[-1].endswith("what was saved is intact, go on with --resume run")
    assert job.counters()["epoch"] > 0


@needs_mpi
def test_no_rank_outlives_the_command(run: Callable[..., Run]) -> None:
    job = run(*MPI, *FOR_EVER)
    job.trains()
    job.process.kill()
    job.ends()


@needs_mpi
@pytest.mark.parametrize("how", daily([signal.SIGINT], [signal.SIGTERM, signal.SIGHUP]))
def test_a_signal_stops_ranks_where_they_meet(run: Callable[..., Run], how: signal.Signals) -> None:
    job = run(*MPI, *FOR_EVER, "--restarts", "2", "--json")
    job.trains()
    job.process.send_signal(how)
    code, out, err = job.ends()
    assert code == 130 and "amphw: stopped and saved; go on with" in err
    assert json.loads(out)["stopped_by"] == "interrupt"  # and nothing else is on stdout


@needs_mpi
def test_a_second_signal_ends_ranks_at_once(run: Callable[..., Run]) -> None:
    job = run(*MPI, *FOR_EVER, "--restarts", "2")
    job.trains()
    for _ in range(2):
        job.process.send_signal(signal.SIGTERM)
        time.sleep(0.05)  # or the system makes one of them
    code, _, err = job.ends()
    assert code == 130 and err.splitlines()[-1].startswith("amphw: ended at once; what was saved in run")


def test_a_process_of_threads_is_started_again(run: Callable[..., Run]) -> None:
    job = run("--ranks", "2", "--restarts", "1", "--set", "epochs=60", "--json")
    job.trains()
    job.kill(lambda environment, name: "AMPHW_LAUNCHED" in environment)
    code, out, err = job.ends()
    assert code == 0, err
    assert json.loads(out)["ranks"] == 2 and "the process of the run was killed by SIGKILL; going on" in err
    whole_epochs(job.counters(), 60)


def test_an_error_of_the_user_is_not_tried_again(run: Callable[..., Run], tmp_path: Path) -> None:
    job = run("--ranks", "2", "--restarts", "3", "--set", "mode=async")
    code, _, err = job.ends()
    assert code == 1 and err.count("replicas.strategy=hybrid adds up") == 1 and "going on" not in err
    assert not (tmp_path / "run").exists()


@needs_mpi
def test_ranks_on_other_machines(run: Callable[..., Run], tmp_path: Path, monkeypatch: Any) -> None:
    """A script is in ssh's place; what it runs ends like a connection that breaks."""
    monkeypatch.setenv(LAUNCHER, stand_in(tmp_path))
    (tmp_path / "hosts").write_text("node-a\nnode-b\n")
    job = run("--carrier", "mpi", "--hosts", "hosts", *FOR_EVER)
    job.trains()
    assert len(job.processes(program("hydra_pmi_proxy"))) == 2
    job.kill(program("hydra_pmi_proxy"))
    code, _, err = job.ends()
    assert code not in (0, 130) and "what was saved is intact" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fewer"], "--fewer is for --restarts"),
        (["--hosts", "hosts"], "write --carrier mpi"),
        pytest.param([*MPI, "--hosts", "hosts"], "--ranks is 2, and the hosts take 1", marks=needs_mpi),
        pytest.param(["--carrier", "mpi", "--hosts", "hosts"], "dead: cannot be reached", marks=needs_mpi),
    ],
)
def test_what_does_not_fit_is_refused(
    run: Callable[..., Run], tmp_path: Path, monkeypatch: Any, arguments: list[str], said: str
) -> None:
    monkeypatch.setenv(LAUNCHER, stand_in(tmp_path))
    (tmp_path / "hosts").write_text("dead\n")
    code, _, err = run(*arguments).ends()
    assert code == 1 and said in err
    assert not (tmp_path / "run").exists()


@needs_mpi
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_campaign_of_a_few_kills(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "rank_faults.py"), "--runs", "6"]
    command += ["--json", str(tmp_path / "record.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout
