"""How a command becomes one of several ranks: the line that starts them, and what they are told beyond it."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from amphw.ir.config_fields import ConfigError
from amphw.replicas.hosts import Host, room, ssh_environment, unusable
from amphw.replicas.mpi import AS_ROOT, mpiexec

LAUNCHED = "AMPHW_LAUNCHED"
"""The environment variable with which a supervised process is told who it is."""

STOP = signal.SIGTERM if sys.platform == "win32" else signal.SIGUSR1
"""Asks supervised processes to stop in good order: MPICH's and Open MPI's launchers hand it on as it is."""


@dataclass(frozen=True)
class Told:
    """What a supervised process takes in place of its options, which are those that the user has typed.

    ranks: how many there are. folder: of the run. goes_on: whether the run is there already, so that it is
    resumed.
    """

    ranks: int
    folder: str
    goes_on: bool

    @classmethod
    def here(cls) -> Told | None:
        """What this process was told; None where nobody supervises it."""
        text = os.environ.get(LAUNCHED)
        return cls(**json.loads(text)) if text else None


@dataclass
class Launch:
    """Ranks to start: processes of `mpiexec`, on these hosts (none: this machine); without mpi one process.

    launcher: the path of `mpiexec`; empty without mpi.
    """

    ranks: int
    launcher: str = ""
    hosts: Sequence[Host] = ()

    def command(self) -> list[str]:
        """This process's own command line, in as many processes."""
        own = [sys.executable, *sys.orig_argv[1:]]
        if not self.launcher:
            return own
        where = []
        if self.hosts:
            where = [
                "-launcher",
                "ssh",
                "-hosts",
                ",".join(f"{host.name}:{host.slots}" for host in self.hosts),
            ]
        return [self.launcher, *where, "-n", str(self.ranks), *own]

    def environment(self, told: Told) -> dict[str, str]:
        found = {**AS_ROOT, **os.environ, LAUNCHED: json.dumps(asdict(told))}
        return ssh_environment(found) if self.hosts else found

    def check(self) -> None:
        """Raise ConfigError where a host cannot be used."""
        if wrong := self._unusable():
            told = "; ".join(f"{name}: {why}" for name, why in wrong.items())
            raise ConfigError(f"ranks cannot be started on every host. {told}")

    def with_fewer(self) -> None:
        """One rank fewer, and none on hosts that cannot be used now; one rank is left at least."""
        wrong = self._unusable()
        self.hosts = [host for host in self.hosts if host.name not in wrong] or self.hosts
        self.ranks = max(1, self.ranks - 1)
        if self.hosts:
            self.ranks = min(self.ranks, room(self.hosts))

    def _unusable(self) -> dict[str, str]:
        return unusable(self.hosts, self.launcher) if self.hosts else {}


def mpi_launch(ranks: int, hosts: Sequence[Host]) -> Launch:
    """ranks: 1: as many as hosts take. Raises ConfigError where MPI is missing or a host is not usable."""
    launcher = mpiexec()
    if launcher is None or importlib.util.find_spec("mpi4py") is None:
        raise ConfigError(
            "--carrier mpi needs mpi4py and mpiexec, which are not here; install them with: "
            "pip install 'amphw[mpi]', or take --carrier threads"
        )
    if hosts:
        if not _is_hydra(launcher):
            raise ConfigError(
                f"--hosts needs MPICH's mpiexec, and {launcher} is another; use the one of amphw[mpi]"
            )
        if ranks > room(hosts):
            raise ConfigError(
                f"--ranks is {ranks}, and the hosts take {room(hosts)}; write how many each takes, as in "
                f"{hosts[0].name}:{ranks}"
            )
    found = Launch(room(hosts) if hosts and ranks == 1 else ranks, launcher, hosts)
    found.check()
    return found


@functools.cache
def _is_hydra(launcher: str) -> bool:
    asked = [launcher, "--version"]
    return "HYDRA" in subprocess.run(asked, capture_output=True, text=True, check=False).stdout


def begun(folder: Path) -> bool:
    """Whether a run in `folder` has come far enough to be resumed; what marks one that has not is removed."""
    from amphw.host.run_folder import CONFIG, RunFolder

    if (folder / CONFIG).exists():
        return True
    RunFolder(folder, new=True).abandon()
    return False
