"""Ranks that are processes: `mpiexec` runs small programs, and `amphw train`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from amphw.host.checkpoint import load_checkpoint
from amphw.host.checkpointing import CHECKPOINT

MPIEXEC = Path(sys.executable).parent / "mpiexec"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or not MPIEXEC.exists(), reason="needs the extra mpi"
)
SMALL = ["hidden=8", "batch=10", "train_instances=200", "valid_instances=50", "epochs=2", "target=none"]
SETTINGS = [*SMALL, "mode=pipeline", "workers=1"]
TRAIN = ["train", "list-reduction", *(word for setting in SETTINGS for word in ("--set", setting))]
SOON = 30.0
"""Seconds within which a group of ranks has to end, most of which is Python's start."""


def mpi(ranks: int, program: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program on ranks; what it still runs after its time is an error."""
    command = [str(MPIEXEC), "-n", str(ranks), sys.executable, "-c", textwrap.dedent(program), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SOON, check=False)


def trained(ranks: int, folder: Path, *arguments: str, before: str = "") -> Any:
    program = f"{textwrap.dedent(before)}\nfrom amphw.cli.main import app\napp()\n"
    return mpi(ranks, program, folder, *TRAIN, *arguments)


def alive(mark: str) -> list[int]:
    """Processes whose environment has the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended, or is somebody else's
    return found


@pytest.mark.parametrize("ranks", [2, 3])
def test_collectives_over_mpi_give_what_they_give_over_threads(tmp_path: Path, ranks: int) -> None:
    """Also of two megabytes, which MPI moves only while both sides take part."""
    done = mpi(
        ranks,
        """
        import numpy as np
        from amphw.replicas.collectives import all_gather, all_reduce
        from amphw.replicas.mpi import mpi_transport
        t = mpi_transport()
        for size in (1, 2, 1000, 500_001):
            everything = np.random.default_rng(size).integers(0, 99, (t.ranks, size)).astype(float)
            mine = everything[t.rank].copy()
            all_reduce(t, mine)
            assert (mine == everything.sum(axis=0)).all()
        sizes = [3 * r for r in range(t.ranks)]
        found = all_gather(t, np.full(sizes[t.rank], t.rank), sizes)
        assert [each.tolist() for each in found] == [[r] * n for r, n in enumerate(sizes)]
        t.close()
        print("right")
        """,
        tmp_path,
    )
    assert done.returncode == 0 and done.stdout.count("right") == ranks, done.stderr


def test_a_run_of_processes_is_that_of_threads(tmp_path: Path) -> None:
    one = trained(2, tmp_path, "--out", "processes", "--json")
    assert one.returncode == 0, one.stderr
    found = json.loads(one.stdout)  # the first rank alone has written
    assert (found["ranks"], found["strategy"]) == (2, "allreduce")
    amphw = [sys.executable, "-m", "amphw.cli", *TRAIN, "--ranks", "2", "--out", "threads", "--json"]
    other = subprocess.run(amphw, cwd=tmp_path, capture_output=True, text=True, timeout=SOON, check=True)
    assert found["valid"] == pytest.approx(json.loads(other.stdout)["valid"], rel=1e-4)
    assert found["bytes"] == json.loads(other.stdout)["bytes"]
    here, there = (load_checkpoint(tmp_path / run / CHECKPOINT, None)[0] for run in ("processes", "threads"))
    for name, value in there.items():
        assert here[name] == pytest.approx(value, abs=1e-4)
    again = trained(3, tmp_path, "--resume", "processes", "--set", "epochs=3", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["epochs"] == 3


def test_a_rank_with_another_setting_is_named(tmp_path: Path) -> None:
    before = """
    import os, sys
    if os.environ.get("PMI_RANK") == "1":
        sys.argv += ["--set", "lr=0.5"]
    """
    done = trained(2, tmp_path, "--out", "run", before=before)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "amphw: ranks do not train the same: setting update.lr is 0.003 on rank 0, and 0.5 on rank 1"
    ]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("end", ["raise AmphwError('out of order')", "os.kill(os.getpid(), 9)"])
def test_the_end_of_a_rank_ends_all(tmp_path: Path, rank: int, end: str) -> None:
    before = f"""
    import os
    from amphw.ir.errors import AmphwError
    from amphw.replicas.replica import Replica
    update = Replica.update
    def fails(self, device):
        if self.transport.rank == {rank} and self.traffic.steps == 5:
            {end}
        update(self, device)
    Replica.update = fails
    """
    mark = f"AMPHW_TESTED={tmp_path}"
    os.environ["AMPHW_TESTED"] = str(tmp_path)
    try:
        done = trained(2, tmp_path, "--out", "run", before=before)
    finally:
        del os.environ["AMPHW_TESTED"]
    assert done.returncode != 0
    assert alive(mark) in ([], [os.getpid()])
    if "raise" in end:
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("amphw:")]
        assert line.endswith("out of order") and (f"rank {rank} has failed" in line or rank == 0)
    counters = load_checkpoint(tmp_path / "run" / CHECKPOINT, None)[1]["counters"]
    assert counters["epoch"] == 1
    on = trained(1, tmp_path, "--resume", "run", "--json")
    assert on.returncode == 0 and json.loads(on.stdout)["epochs"] == 2
