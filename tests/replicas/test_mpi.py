"""Ranks that are processes: `mpiexec` runs small programs, and `amphw train`."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from amphw.host.checkpoint import load_checkpoint
from amphw.host.checkpointing import CHECKPOINT
from tests.daily import daily

MPIEXEC = Path(sys.executable).parent / "mpiexec"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or not MPIEXEC.exists(), reason="needs the extra mpi"
)
SMALL = ["hidden=8", "batch=10", "train_instances=200", "valid_instances=50", "epochs=2", "target=none"]
SETTINGS = [*SMALL, "mode=pipeline", "workers=1"]
TRAIN = ["train", "list-reduction", *(word for setting in SETTINGS for word in ("--set", setting))]
SEGMENTS = Path("/dev/shm")
SOON = 90.0
"""Seconds within which a group of ranks has to end, most of which is Python's start."""


def mapped() -> Iterator[str]:
    """What each process has in its memory."""
    for entry in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # it has ended, or is somebody else's
            yield entry.read_text()


@pytest.fixture(autouse=True)
def tidied() -> Iterator[None]:
    """MPICH's own memory, which a rank that is killed cannot give back, is."""
    before = set(SEGMENTS.glob("mpich_shm_*"))
    yield
    for left in set(SEGMENTS.glob("mpich_shm_*")) - before:
        if not any(str(left) in maps for maps in mapped()):
            left.unlink()


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
        from amphw.replicas.packed import add_up
        t = mpi_transport()
        for size in (1, 2, 1000, 500_001):
            everything = np.random.default_rng(size).integers(0, 99, (t.ranks, size)).astype(float)
            mine = everything[t.rank].copy()
            all_reduce(t, mine)
            assert (mine == everything.sum(axis=0)).all()
        sizes = [3 * r for r in range(t.ranks)]
        found = all_gather(t, np.full(sizes[t.rank], t.rank), sizes)
        assert [each.tolist() for each in found] == [[r] * n for r, n in enumerate(sizes)]
        counts = np.arange(900) + t.rank
        add_up(t, counts)
        assert (counts == t.ranks * np.arange(900) + sum(range(t.ranks))).all()
        others = [r for r in range(t.ranks) if r != t.rank]
        for other in others:  # all at first, as servers do
            t.send(other, np.full(1_000_000, t.rank, np.float32))
        for other in others:
            got = np.zeros(1_000_000, np.float32)
            t.receive(other, got)
            assert (got == other).all()
        t.flush()
        t.close()
        print("right")
        """,
        tmp_path,
    )
    assert done.returncode == 0 and done.stdout.count("right") == ranks, done.stderr


def test_what_is_posted_over_mpi_comes_in_order_beside_what_is_waited_for(tmp_path: Path) -> None:
    """Also two megabytes that the other rank takes in after the two have met; nobody waits when posting."""
    done = mpi(
        2,
        """
        import time
        import numpy as np
        from amphw.replicas.collectives import all_reduce
        from amphw.replicas.mpi import mpi_transport
        t = mpi_transport()
        other = 1 - t.rank
        sizes = (8, 2_000_000, 1, 300_000)
        for k, size in enumerate(sizes):
            t.post(other, np.full(size, k + 10 * t.rank, np.uint8))
        total = np.ones(1000)
        all_reduce(t, total)
        assert (total == 2).all()
        for k, size in enumerate(sizes):
            while (found := t.poll(other)) is None:
                time.sleep(1e-3)
            assert found.size == size and (found == k + 10 * other).all()
        assert t.poll(other) is None
        assert t.sent == t.received
        t.close()
        print("right")
        """,
        tmp_path,
    )
    assert done.returncode == 0 and done.stdout.count("right") == 2, done.stderr


def test_processes_synchronise_in_a_group_without_waiting(tmp_path: Path) -> None:
    group = ["mode=async", "replicas.strategy=group", "replicas.every=2"]
    done = trained(2, tmp_path, *(word for each in group for word in ("--set", each)), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # Six rounds of an epoch's batches, each of which holds lists of one length, and a meeting at its end.
    assert (found["ranks"], found["strategy"], found["exchanges"]) == (2, "group", 14)
    assert found["bytes"]["cell.W"]["sent"] == found["bytes"]["cell.W"]["received"] > 0


@pytest.mark.parametrize("strategy", ["ako", "all-to-all"])
def test_processes_exchange_parts_of_gradients(tmp_path: Path, strategy: str) -> None:
    wanted = ["mode=async", f"replicas.strategy={strategy}", "replicas.every=2", "replicas.staleness=1"]
    done = trained(2, tmp_path, *(word for each in wanted for word in ("--set", each)), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    partitions = 2 if strategy == "ako" else 1
    assert (found["partitions"], found["bound"]) == (partitions, partitions + 1)
    assert found["clocks"] == [12, 12]  # six rounds of each epoch
    assert 0 < found["staleness_max"] <= found["bound"] + 1


@pytest.mark.parametrize("servers", [0, 1])
def test_processes_serve_each_other_without_a_barrier(tmp_path: Path, servers: int) -> None:
    wanted = ["mode=async", "replicas.strategy=servers-async", "replicas.every=2", "replicas.staleness=1"]
    wanted.append(f"replicas.servers={servers}")
    done = trained(2 + servers, tmp_path, *(word for each in wanted for word in ("--set", each)), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["bound"] == 1 and found["clocks"] == [12, 12]  # six rounds of each epoch
    assert 0 < found["staleness_max"] <= 2
    assert found["bytes"]["cell.W"]["sent"] > 0 and found["parameter_bytes"]["servers"] > 0


def test_a_run_of_processes_is_that_of_threads(tmp_path: Path) -> None:
    one = trained(2, tmp_path, "--out", "processes", "--json")
    assert one.returncode == 0, one.stderr
    found = json.loads(one.stdout)  # the first rank alone has written
    assert (found["ranks"], found["strategy"]) == (2, "hybrid")
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


def test_a_command_starts_its_ranks_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "amphw.cli", *TRAIN, "--ranks", "2", "--carrier", "mpi", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SOON, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranks"] == 2
    assert len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.parametrize("ended", daily(["hydra_pmi_proxy"], ["mpiexec"]))
def test_ranks_do_not_outlive_their_launcher(tmp_path: Path, ended: str) -> None:
    marked = os.environ | {"AMPHW_TESTED": str(tmp_path)}
    arguments = ["--ranks", "2", "--carrier", "mpi", "--out", "run", "--set", "epochs=100000"]
    command = [sys.executable, "-m", "amphw.cli", *TRAIN, *arguments]
    run = subprocess.Popen(command, cwd=tmp_path, env=marked, stderr=subprocess.DEVNULL)
    mark = f"AMPHW_TESTED={tmp_path}"
    try:
        end = time.monotonic() + SOON
        while not (tmp_path / "run" / CHECKPOINT).exists():
            assert run.poll() is None and time.monotonic() < end
            time.sleep(0.1)
        for pid in alive(mark):
            if Path(f"/proc/{pid}/comm").read_text().strip() == ended[:15]:
                os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + SOON
        while left := [pid for pid in alive(mark) if pid != run.pid]:
            assert time.monotonic() < end, left
            time.sleep(0.1)
    finally:
        for pid in alive(mark):  # mpiexec itself does not notice that its proxy is gone
            os.kill(pid, signal.SIGKILL)
        run.wait()


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


RAISES, DIES = "raise AmphwError('out of order')", "os.kill(os.getpid(), 9)"


@pytest.mark.parametrize(("rank", "end"), daily([(1, RAISES)], [(0, RAISES), (0, DIES), (1, DIES)]))
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
    latest = time.monotonic() + SOON
    while left := [pid for pid in alive(mark) if pid != os.getpid()]:
        assert time.monotonic() < latest, left
        time.sleep(0.1)
    if "raise" in end:
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("amphw:")]
        assert line.endswith("out of order") and (f"rank {rank} has failed" in line or rank == 0)
    counters = load_checkpoint(tmp_path / "run" / CHECKPOINT, None)[1]["counters"]
    assert counters["epoch"] == 1
    on = trained(1, tmp_path, "--resume", "run", "--json")
    assert on.returncode == 0 and json.loads(on.stdout)["epochs"] == 2


def test_ctrl_c_saves_where_ranks_meet_and_the_run_goes_on(tmp_path: Path) -> None:
    """As a terminal does it: mpiexec gets the signal, and hands it to every rank."""
    program = "from amphw.cli.main import app\napp()\n"
    arguments = [*TRAIN, "--out", "run", "--set", "epochs=100000"]
    command = [str(MPIEXEC), "-n", "2", sys.executable, "-c", program, *arguments]
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + SOON
        while not (tmp_path / "run" / CHECKPOINT).exists():
            assert run.poll() is None and time.monotonic() < end
            time.sleep(0.1)
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=SOON)
    finally:
        if run.poll() is None:
            run.kill()
    assert "amphw: stopped and saved; go on with" in said and "has failed" not in said
    had = load_checkpoint(tmp_path / "run" / CHECKPOINT, None)[1]["counters"]["epoch"]
    on = trained(1, tmp_path, "--resume", "run", "--set", f"epochs={had + 1}", "--json")
    assert on.returncode == 0 and json.loads(on.stdout)["epochs"] == had + 1


def test_ranks_end_when_the_first_is_busy_and_another_fails(tmp_path: Path) -> None:
    before = """
    import time
    from amphw.ir.errors import AmphwError
    from amphw.replicas.replica import Replica
    update = Replica.update
    def fails(self, device):
        if self.traffic.steps == 5:
            if self.transport.rank == 0:
                time.sleep(1000)
            raise AmphwError('out of order')
        update(self, device)
    Replica.update = fails
    """
    done = trained(2, tmp_path, "--out", "run", before=before)
    assert done.returncode == 1 and "amphw: rank 1 has failed: out of order" in done.stderr


@pytest.mark.thorough
def test_a_mistake_in_another_rank_comes_with_its_traceback(tmp_path: Path) -> None:
    before = """
    from amphw.replicas.replica import Replica
    update = Replica.update
    def fails(self, device):
        if self.transport.rank == 1:
            {}["cell"]
        update(self, device)
    Replica.update = fails
    """
    done = trained(2, tmp_path, "--out", "run", before=before)
    assert done.returncode == 1
    assert "amphw: rank 1 has failed: Traceback" in done.stderr and "KeyError: 'cell'" in done.stderr


@pytest.mark.thorough
def test_several_seeds_are_for_one_process(tmp_path: Path) -> None:
    done = trained(2, tmp_path, "--out", "run", "--seeds", "2")
    assert done.returncode != 0 and "leave --seeds out" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("other", ["reference", "nothing"])
def test_a_script_that_every_rank_runs(tmp_path: Path, other: str) -> None:
    """The first has the summary; an error of one is told by all, and they end."""
    done = mpi(
        2,
        f"""
        from pathlib import Path

        from amphw.replicas.runner import get_runner, shard
        from tests.host.training import MODEL
        from tests.replicas.test_equivalence import settings

        runner = get_runner(MODEL, {{"localhost": ["reference", "{other}"]}}, settings(MODEL, 1))
        did = "trained" if runner.run() is not None else "followed"
        Path(f"rank-{{runner.transport.rank}}").write_text(f"{{did}} {{len(shard(range(11)))}}")
        """,
        tmp_path,
    )
    if other == "reference":
        assert done.returncode == 0, done.stderr
        assert [(tmp_path / f"rank-{rank}").read_text() for rank in (0, 1)] == ["trained 5", "followed 6"]
    else:
        assert done.returncode != 0 and "rank 1 has failed: there is no device 'nothing'" in done.stderr
        assert "mpi4py.MPI.Exception" not in done.stderr
