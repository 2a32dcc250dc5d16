"""Ranks that are processes started by MPI (`mpiexec`, `srun`), reached through mpi4py.

Only nonblocking calls are made, and waited for with naps: a blocking one keeps a core busy for as long as it
waits, and ranks wait for each other after every update.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from amphw.ir.config_fields import ConfigError
from amphw.replicas.transport import RankLostError, reason

VALUES, FAILED = 1, 2
"""Tags: arrays, and the reason why a rank has ended."""
SPINS = 50
"""How often a message is asked for before the first nap: on one machine most have come by then."""
FIRST_NAP, LONGEST_NAP = 2e-5, 1e-3
"""Seconds. Naps double, so that a short wait is short and a long one costs some hundredths of a core."""
LOOK = 0.05
"""Seconds between looks whether a rank has failed, which also bring on what others are to receive."""
LOOK_AT_PARENT = 1.0
"""Seconds between looks whether the launcher is there."""
LEAVE = 2.0
"""Seconds for which a rank that ends waits until the others have been told."""
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
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ConfigError(
            f"this process is one of {world_size()} ranks, but mpi4py cannot be used ({error}); "
            "install it with: pip install 'amphw[mpi]'"
        ) from error
    _watch_parent()
    found = MpiTransport(MPI.COMM_WORLD, MPI.BYTE, MPI.Status())
    if found.ranks != world_size():
        raise ConfigError(
            f"the launcher has started {world_size()} ranks, but mpi4py's MPI sees {found.ranks}: they "
            "belong to two MPI installations; use the mpiexec that lies beside this Python"
        )
    return found


def _watch_parent() -> None:
    """End this process once what started it is gone: it would wait for the other ranks for ever.

    A checkpoint is written beside the last one and takes its place at once, so none is damaged.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_AT_PARENT)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


class MpiTransport:
    """See `Transport`. communicator: of mpi4py. byte: its datatype of one byte. status: one of its own."""

    def __init__(self, communicator: Any, byte: Any, status: Any):
        self._comm, self._byte, self._status = communicator, byte, status
        self.rank, self.ranks = communicator.Get_rank(), communicator.Get_size()
        self.sent = self.received = 0
        self._under_way: list[tuple[Any, np.ndarray]] = []  # requests, and what they still read from
        self._awaited: tuple[Any, np.ndarray] | None = None  # MPI may write there until it has come
        self._looked = 0.0

    def send(self, to: int, values: np.ndarray) -> None:
        self.check()
        self._post(to, values.copy(), VALUES)
        self.sent += values.nbytes

    def receive(self, source: int, into: np.ndarray) -> None:
        """Nor does it return before all that this rank has sent is on its way: MPI moves a large message on
        only while somebody calls it, and after this call the rank may compute for long."""
        self._awaited = self._comm.Irecv([into.view(np.uint8), self._byte], source, VALUES), into
        self._until(self._awaited[0].Test)
        self.received += into.nbytes
        self._until(self._all_sent)

    def _post(self, to: int, values: np.ndarray, tag: int) -> None:
        data = values.reshape(-1).view(np.uint8)
        self._under_way.append((self._comm.Isend([data, self._byte], to, tag), data))

    def _all_sent(self) -> bool:
        self._under_way = [each for each in self._under_way if not each[0].Test()]
        return not self._under_way

    def _until(self, done: Callable[[], bool], watch: bool = True, at_most: float = float("inf")) -> None:
        nap, spins, began = FIRST_NAP, SPINS, time.perf_counter()
        while not done() and time.perf_counter() - began < at_most:
            if spins:
                spins -= 1
                continue
            if watch:
                self.check()
            time.sleep(nap)
            nap = min(2 * nap, LONGEST_NAP)

    def check(self) -> None:
        """See `Transport`; looks now and then, and brings on what others are to receive."""
        now = time.perf_counter()
        if now - self._looked < LOOK:
            return
        self._looked = now
        self._all_sent()
        for source in range(self.ranks):
            if source != self.rank and self._comm.Iprobe(source, FAILED, self._status):
                why = np.empty(self._status.Get_count(self._byte), np.uint8)
                self._comm.Recv([why, self._byte], source, FAILED)
                raise RankLostError(why.tobytes().decode(errors="replace"))

    def fail(self, error: BaseException) -> None:
        why = reason(self.rank, error).encode()
        for other in range(self.ranks):
            if other != self.rank:
                self._post(other, np.frombuffer(why, np.uint8), FAILED)
        self._until(self._all_sent, watch=False, at_most=LEAVE)

    def close(self) -> None:
        self._until(self._all_sent, watch=False, at_most=LEAVE)
