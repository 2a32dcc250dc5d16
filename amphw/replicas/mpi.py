"""Ranks that are processes started by MPI (`mpiexec`, `srun`), reached through mpi4py.

Only nonblocking calls are made, and waited for with naps: a blocking one keeps a core busy for as long as it
waits, and ranks wait for each other after every update. At the end, too, ranks meet with naps, before they
finalise MPI, which spins.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from amphw.ir.config_fields import ConfigError
from amphw.replicas.collectives import ranges
from amphw.replicas.transport import RankLostError, RealTime, reason

VALUES, FAILED, POSTED = 1, 2, 3
"""Tags: arrays, the reason why a rank has ended, and arrays that nobody waits for."""
SPINS = 50
"""How often a message is asked for before the first nap: on one machine most have come by then."""
FIRST_NAP, LONGEST_NAP = 2e-5, 1e-3
"""Seconds. Naps grow with the wait, so that a short one is short and a long one costs some hundredths of a
core."""
SHARE = 1 / 32
"""How long a nap is, of the time waited so far: so a message is noticed late by this share at most. MPI moves
a large message on only when it is asked, too, and what a link brings meanwhile has to fit into buffers."""
LOOK = 0.05
"""Seconds between looks whether a rank has failed, which also bring on what others are to receive."""
LOOK_AT_PARENT = 0.5
"""Seconds between looks whether the launcher is there."""
LEAVE = 2.0
"""Seconds for which a rank that has failed waits until the others know, and as many until they end."""
TOLD, LOST = 1, 75
"""Exit codes of a rank that ends them all: what is wrong has been said, or another one cannot be reached. The
second is a temporary failure in sysexits.h."""
SEGMENTS = "/dev/shm/mpich_shm_"
"""How the names of MPICH's shared memory begin."""
WORLD = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
"""Where Open MPI, MPICH and `srun` say how many ranks they have started."""

AS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
"""What Open MPI asks for before it starts ranks for root, as in containers, or more of them than cores."""


def mpiexec() -> str | None:
    """The launcher that belongs to this Python's MPI library, or else one that is on the path."""
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    return shutil.which("mpiexec", path=places)


def world_size() -> int:
    """How many ranks the launcher of this process has started; 1 where there is none."""
    return max((int(os.environ[name]) for name in WORLD if os.environ.get(name, "").isdigit()), default=1)


def mpi_transport() -> MpiTransport:
    """This process among the ranks of its launcher. Raises ConfigError where mpi4py is missing."""
    # Before MPI starts, which fails where the launcher is gone by then.
    _watch_parent(os.getppid())
    try:
        import mpi4py

        mpi4py.rc.finalize = False  # at exit it would spin until the slowest rank ends: see `close`
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ConfigError(
            f"this process is one of {world_size()} ranks, but mpi4py cannot be used ({error}); "
            "install it with: pip install 'amphw[mpi]'"
        ) from error
    found = MpiTransport(MPI)
    if found.ranks != world_size():
        MPI.Finalize()
        raise ConfigError(
            f"the launcher has started {world_size()} ranks, but mpi4py's MPI sees {found.ranks}: they "
            "belong to two MPI installations; use the mpiexec that lies beside this Python"
        )
    found.meet()
    _bind(MPI)
    _unlink_segments()
    return found


def _bind(mpi: Any) -> None:
    """Give each of the ranks of a machine processors of its own, unless the launcher has.

    Otherwise the threads of two ranks meet on one processor, now and then, while another one is idle, and
    all ranks wait for those.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    here = mpi.COMM_WORLD.Split_type(mpi.COMM_TYPE_SHARED)
    try:
        there = here.allgather(sorted(os.sched_getaffinity(0)))
        processors, ranks = there[0], here.Get_size()
        if 1 < ranks <= len(processors) and all(each == processors for each in there):
            os.sched_setaffinity(0, processors[ranges(len(processors), ranks)[here.Get_rank()]])
    finally:
        here.Free()


def _watch_parent(parent: int) -> None:
    """End this process once what started it is gone: it would wait for the other ranks for ever.

    A checkpoint is written beside the last one and takes its place at once, so none is damaged.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_AT_PARENT)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _unlink_segments() -> None:
    """Take the name from MPICH's shared memory, which all ranks here have in their memory by now.

    So nothing is left in /dev/shm, whichever of them is killed. MPICH would unlink it when it finalises, and
    does not mind that it is gone.
    """
    with contextlib.suppress(OSError):  # there is no /proc
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            path = line.split(maxsplit=5)[-1].removesuffix(" (deleted)")
            if path.startswith(SEGMENTS):
                Path(path).unlink(missing_ok=True)


class MpiTransport(RealTime):
    """See `Transport`. mpi: the module `mpi4py.MPI`."""

    def __init__(self, mpi: Any):
        self._mpi, self._comm, self._byte, self._status = mpi, mpi.COMM_WORLD, mpi.BYTE, mpi.Status()
        self.rank, self.ranks = self._comm.Get_rank(), self._comm.Get_size()
        self.sent = self.received = 0
        self.cut_off = False  # whether MPI itself cannot reach a rank
        self._under_way: list[tuple[Any, np.ndarray]] = []  # requests, and what they still read from
        # Whoever receives does not wait until these are gone: the other side looks for them when it likes.
        self._posted: dict[int, list[tuple[Any, np.ndarray]]] = {}  # by rank
        self._coming: dict[int, tuple[Any, np.ndarray]] = {}  # by source, posted arrays whose begin is here
        self._awaited: tuple[Any, np.ndarray] | None = None  # MPI may write there until it has come
        self._looked = 0.0
        self._told = ""  # why another rank has failed
        self._failed = self._closed = False

    def send(self, to: int, values: np.ndarray) -> None:
        self.check()
        with self._reaching():
            self._under_way.append(self._isend(to, values.copy(), VALUES))
        self.sent += values.nbytes

    def receive(self, source: int, into: np.ndarray) -> None:
        with self._reaching():
            self._awaited = self._comm.Irecv([into.view(np.uint8), self._byte], source, VALUES), into
            self._until(self._awaited[0].Test)
            self.received += into.nbytes

    def flush(self) -> None:
        """MPI moves a large message on only while somebody calls it, and ranks compute for long. Not part of
        `receive`: where three ranks send to each other first, each would wait for the next one's second."""
        with self._reaching():
            self._until(self._all_sent)

    def meet(self) -> None:
        """Wait until all ranks are here."""
        with self._reaching():
            self._until(self._comm.Ibarrier().Test)

    def post(self, to: int, values: np.ndarray) -> None:
        self.check()
        with self._reaching():
            self._posted.setdefault(to, []).append(self._isend(to, values.copy(), POSTED))
        self.sent += values.nbytes

    def posted(self, to: int) -> int:
        with self._reaching():
            self._posted[to] = [each for each in self._posted.get(to, []) if not each[0].Test()]
        return len(self._posted[to])

    def poll(self, source: int) -> np.ndarray | None:
        self.check()
        with self._reaching():
            if source not in self._coming:
                message = self._comm.Improbe(source, POSTED, self._status)
                if message is None:
                    return None
                into = np.empty(self._status.Get_count(self._byte), np.uint8)
                self._coming[source] = message.Irecv([into, self._byte]), into
            request, into = self._coming[source]
            if not request.Test():
                return None
        del self._coming[source]
        self.received += into.nbytes
        return into

    def _isend(self, to: int, values: np.ndarray, tag: int) -> tuple[Any, np.ndarray]:
        data = values.reshape(-1).view(np.uint8)
        return self._comm.Isend([data, self._byte], to, tag), data

    def _all_sent(self) -> bool:
        self._under_way = [each for each in self._under_way if not each[0].Test()]
        return not self._under_way

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except self._mpi.Exception as error:
            self.cut_off = True
            raise RankLostError(f"rank {self.rank} does not reach the others any more: {error}") from error

    def _until(self, done: Callable[[], bool], at_most: float = float("inf"), check: bool = True) -> bool:
        """Wait for `done`, at most so many seconds -> whether it is. check: raise where a rank has failed."""
        spins, began = SPINS, time.perf_counter()
        while not done():
            if spins:
                spins -= 1
                continue
            self._listen()
            if check:
                self._raise_told()
            waited = time.perf_counter() - began
            if waited > at_most:
                return False
            time.sleep(min(max(SHARE * waited, FIRST_NAP), LONGEST_NAP))
        return True

    def check(self) -> None:
        """See `Transport`; looks now and then, and brings on what others are to receive. Whoever trains asks
        with every instance."""
        if time.perf_counter() - self._looked >= LOOK:
            with self._reaching():
                self._listen()
        self._raise_told()

    def _raise_told(self) -> None:
        if self._told:
            raise RankLostError(self._told)

    def _listen(self) -> None:
        """Take in that other ranks have failed, which they wait for, now and then."""
        now = time.perf_counter()
        if now - self._looked < LOOK:
            return
        self._looked = now
        self._all_sent()
        for to in list(self._posted):
            self.posted(to)
        for source in range(self.ranks):
            if source != self.rank and self._comm.Iprobe(source, FAILED, self._status):
                why = np.empty(self._status.Get_count(self._byte), np.uint8)
                self._comm.Recv([why, self._byte], source, FAILED)
                self._told = self._told or why.tobytes().decode(errors="replace")

    def fail(self, error: BaseException) -> bool:
        """See `Transport`. -> whether the first rank knows of it, which is to tell the user."""
        self._failed = True
        if isinstance(error, RankLostError):  # of which that rank has told all, if it could
            return True
        why = np.frombuffer(reason(self.rank, error).encode(), np.uint8)
        others = [rank for rank in range(self.ranks) if rank != self.rank]
        try:
            # In synchronous mode, which ends when the other has received it.
            posted = {rank: self._comm.Issend([why, self._byte], rank, FAILED) for rank in others}
            self._until(lambda: all(each.Test() for each in posted.values()), LEAVE, check=False)
            return self.rank == 0 or posted[0].Test()
        except self._mpi.Exception:
            self.cut_off = True
            return False

    def close(self) -> None:
        """Meet the others and finalise MPI. Where they do not come after a failure, it ends all instead,
        so that none computes in vain, and does not return."""
        if self._closed:
            return
        self._closed = True
        try:
            if not self.cut_off:
                there = self._comm.Ibarrier().Test
                if self._until(
                    lambda: self._all_sent() and there(), LEAVE if self._failed else float("inf"), check=False
                ):
                    # After a failure there are messages that nobody has received, of which MPICH complains.
                    with contextlib.suppress(*([self._mpi.Exception] if self._failed else [])):
                        self._mpi.Finalize()
                    return
        except self._mpi.Exception:
            self.cut_off = True
        self._comm.Abort(LOST if self.cut_off else TOLD)
