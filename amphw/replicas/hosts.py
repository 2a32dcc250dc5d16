"""The machines that ranks are started on: the file that lists them, and whether each can be used."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from amphw.ir.config_fields import ConfigError

LAUNCHER = "HYDRA_LAUNCHER_EXEC"
"""The environment variable in which MPICH finds another program than `ssh`."""
LAUNCHER_OPTIONS = "HYDRA_LAUNCHER_EXTRA_ARGS"
"""The one with further options for it."""
CONNECT = 5
"""Seconds in which a machine has to answer."""
ANSWER = 60
"""Seconds in which Python has to start there."""
SSH_OPTIONS = {
    "BatchMode": "yes",  # nobody is there to type a password
    "ConnectTimeout": str(CONNECT),
    # A machine that has fallen silent is given up after 15 seconds.
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
}
_LINE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?::(?P<count>\d+)|\s+slots\s*=\s*(?P<slots>\d+))?")
_UNREACHED = 255
"""Exit code of ssh where it has not reached the machine."""
_NO_PYTHON, _NO_FOLDER, _NO_LAUNCHER = 96, 97, 98


@dataclass(frozen=True)
class Host:
    """slots: how many ranks it takes."""

    name: str
    slots: int = 1


def read_hosts(path: Path) -> list[Host]:
    """The machines of a file: one a line, `name`, `name:N` or `name slots=N`; # begins a comment.

    A machine that is named twice takes the ranks of both lines. Raises ConfigError with the number of a line
    that cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the hosts in {path}: {error}") from error
    found: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        read = _LINE.fullmatch(text)
        slots = int(read["count"] or read["slots"] or 1) if read else 0
        if read is None or slots == 0:
            raise ConfigError(
                f"{path}, line {number}: {text!r} is no host; write NAME, NAME:N or NAME slots=N, with N "
                "of 1 or more (a user's name and a port belong to ~/.ssh/config)"
            )
        found[read["name"]] = found.get(read["name"], 0) + slots
    if not found:
        raise ConfigError(f"{path} names no host; write one a line, as NAME or NAME:N")
    return [Host(name, slots) for name, slots in found.items()]


def room(hosts: Iterable[Host]) -> int:
    """How many ranks these machines take."""
    return sum(host.slots for host in hosts)


def unusable(hosts: Sequence[Host], launcher: str) -> dict[str, str]:
    """What is wrong with machines on which ranks could not be started, by their names.

    Each is asked, at the same time, for what `mpiexec` will want there: the folder of this command, this
    Python with amphw and mpi4py, and MPI's own program beside it. launcher: path of `mpiexec`.
    """
    others = [host.name for host in hosts if not _here(host.name)]
    with ThreadPoolExecutor(max(1, len(others))) as pool:
        said = pool.map(lambda name: _asked(name, Path(launcher).parent / "hydra_pmi_proxy"), others)
    return {name: wrong for name, wrong in zip(others, said, strict=True) if wrong}


def ssh_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The same with ssh's options for `mpiexec`; what the user has set stays, and wins."""
    options = [word for name, value in SSH_OPTIONS.items() for word in ("-o", f"{name}={value}")]
    had = environment.get(LAUNCHER_OPTIONS, "")
    return {**environment, LAUNCHER_OPTIONS: " ".join([*had.split(), *options])}


def _here(name: str) -> bool:
    """Whether a name is this machine's, so that `mpiexec` needs no ssh."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as tried:
                tried.bind(address)  # which is for addresses of this machine
                return True
        except OSError:
            continue
    return False


def _asked(name: str, proxy: Path) -> str:
    """What is wrong with one machine; empty: nothing."""
    python, folder = sys.executable, os.getcwd()
    question = (
        f"cd {shlex.quote(folder)} || exit {_NO_FOLDER}; test -x {shlex.quote(python)} || exit {_NO_PYTHON}; "
        f"test -x {shlex.quote(str(proxy))} || exit {_NO_LAUNCHER}; "
        f"exec {shlex.quote(python)} -c 'import amphw, mpi4py'"
    )
    ssh = os.environ.get(LAUNCHER) or "ssh"
    options = ssh_environment(os.environ)[LAUNCHER_OPTIONS].split()
    try:
        done = subprocess.run(
            [ssh, "-x", *options, name, question],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER,
            check=False,
        )
    except OSError as error:
        return f"{ssh} cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"no answer in {ANSWER} seconds"
    said = (done.stderr.strip().splitlines() or [f"{ssh} ended with {done.returncode}"])[-1]
    return {
        0: "",
        _UNREACHED: f"cannot be reached with {ssh}: {said}",
        _NO_PYTHON: f"there is no {python}; install amphw there at the same place as here",
        _NO_FOLDER: f"there is no folder {folder}, in which this command runs; make it, or go to one that is",
        _NO_LAUNCHER: f"there is no {proxy}; install amphw[mpi] there at the same place as here",
    }.get(done.returncode, f"{python} there cannot import amphw and mpi4py: {said}")
