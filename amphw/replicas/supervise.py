"""The parent of a run's processes: it hands on what they write and what it is told, and ends what is left.

The processes are those of `mpiexec`, or one process whose ranks are threads. They are in a session of their
own, so that a terminal's signals come to the supervisor alone, which asks ranks to stop with a signal that
launchers hand on as it is (of Ctrl-C they have an opinion of their own, and tell it on stdout).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from amphw.ir.config_fields import ConfigError
from amphw.replicas.launch import STOP, Launch, Told, begun
from amphw.replicas.processes import adopt_orphans, end_all_below, ends_with_parent, processes

TOLD = (0, 1, 2, 130)
"""Exit codes of a run that has said how it ended: done, an error, a wrong command line, stopped."""
INTERRUPTED = 130
LOOK = 0.1
"""Seconds between looks at signals and at the launcher."""
LOOK_BELOW = 0.5
"""Seconds between looks at what the launcher has started."""
GRACE = 3.0
"""Seconds for a launcher to end after the first process that it has started, as it does when all is done."""
SETTLE = 2.0
"""Seconds before ranks start again, in which those on other machines notice that they are to end."""
CHATTER = re.compile(
    rb"\[(mpiexec|proxy)[@:]|={20}|=   |YOUR APPLICATION TERM|This typically|Please see the FAQ"
)
"""Lines of MPICH's launcher on stdout, which is for results. It says there that a rank was killed."""
_HOW = re.compile(rb"EXIT STRING: (.*)")


@dataclass(frozen=True)
class Ended:
    """code: to exit with. lost: what was killed or lost; empty where the run itself has ended."""

    code: int
    lost: str = ""


class Supervisor:
    """say: tells the user one line."""

    def __init__(self, say: Callable[[str], None]):
        self._say = say
        self._asked: list[int] = []

    def run(self, launch: Launch, folder: Path, goes_on: bool, restarts: int, fewer: bool) -> int:
        """Start the ranks, and again after some were lost, at most `restarts` times -> the exit code.

        folder: of the run. goes_on: whether the run is to go on, rather than to begin. fewer: with one rank
        fewer at each restart.
        """
        adopt_orphans()
        with self._signals():
            for restart in range(restarts + 1):
                told = Told(launch.ranks, str(folder), goes_on or (restart > 0 and begun(folder)))
                ended = self._job(launch, told)
                if not ended.lost:
                    return ended.code
                if self._asked:
                    self._say(f"ended at once; what was saved in {folder} before is intact")
                    return INTERRUPTED
                if restart == restarts:
                    break
                if launch.hosts:
                    time.sleep(SETTLE)
                if fewer:
                    launch.with_fewer()
                elif wrong := _wrong(launch):
                    self._say(wrong)
                    break
                if self._asked:
                    return INTERRUPTED
                ranks = f"{launch.ranks} rank{'s' * (launch.ranks > 1)}"
                self._say(
                    f"{ended.lost}; going on with {ranks} from what {folder} has saved "
                    f"(restart {restart + 1} of {restarts})"
                )
        self._say(f"{ended.lost}; what was saved is intact, go on with --resume {folder}")
        return ended.code

    def _job(self, launch: Launch, told: Told) -> Ended:
        own = os.getpid()
        piped = subprocess.PIPE if launch.launcher else None  # one process is given the terminal itself
        process = subprocess.Popen(
            launch.command(),
            stdin=subprocess.DEVNULL,
            stdout=piped,
            stderr=piped,
            env=launch.environment(told),
            start_new_session=True,
            preexec_fn=ends_with_parent() if sys.platform == "linux" else None,
        )
        said: list[bytes] = []
        pumps = [
            threading.Thread(target=pump, args=arguments, daemon=True)
            for pump, arguments in (
                (_pass_lines, (process.stdout, sys.stdout, said)),
                (_pass, (process.stderr, sys.stderr)),
            )
            if piped
        ]
        for each in pumps:
            each.start()
        try:
            lost = self._wait(process, bool(launch.launcher))
        finally:
            process.kill()  # nothing happens to one that has ended
            process.wait()
            end_all_below(own)
        for each in pumps:
            each.join(GRACE)
        if lost:
            return Ended(1, lost)
        if process.returncode in TOLD:
            return Ended(process.returncode)
        how = _HOW.search(b"".join(said))
        if how:  # MPICH says so
            what = f"a rank was lost: {how[1].decode(errors='replace').strip()}"
        else:
            what = f"{'mpiexec' if launch.launcher else 'the process of the run'} {_how(process.returncode)}"
        return Ended(process.returncode if process.returncode > 0 else 128 - process.returncode, what)

    def _wait(self, process: subprocess.Popen[bytes], launches: bool) -> str:
        """Wait for the end, and hand on signals -> what was lost without the launcher's notice."""
        handed, looked, below = False, time.monotonic(), Below(process.pid)
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOOK)
                return ""
            if self._asked and not handed:
                handed = True
                with contextlib.suppress(OSError):
                    process.send_signal(STOP)
            if any(each != _hang_up() for each in self._asked[1:]):
                return "the run"
            if launches and time.monotonic() - looked > LOOK_BELOW:
                looked = time.monotonic()
                if below.lost(looked):
                    return "what mpiexec had started for a machine (ssh, or MPI's proxy) was lost"

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def handle(received: int, _frame: FrameType | None) -> None:
            self._asked.append(received)

        asking = [signal.SIGINT, signal.SIGTERM]
        hang_up = _hang_up()
        if hang_up is not None and signal.getsignal(hang_up) is not signal.SIG_IGN:
            asking.append(hang_up)
        before: dict[Any, Any] = {each: signal.signal(each, handle) for each in asking}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _wrong(launch: Launch) -> str:
    """Why the same ranks cannot start again; empty: they can."""
    try:
        launch.check()
    except ConfigError as error:
        return str(error)
    return ""


def _hang_up() -> signal.Signals | None:
    """What a terminal sends that goes away; Windows has none."""
    return getattr(signal, "SIGHUP", None)


class Below:
    """What a launcher has started: a process for each machine, whose end it does not always notice."""

    def __init__(self, launcher: int):
        self._launcher = launcher
        self._seen = set[int]()
        self._since: float | None = None

    def lost(self, now: float) -> bool:
        """Whether one has been gone for so long that the launcher does not end for it. now: seconds."""
        there = {each.pid for each in processes() if each.parent == self._launcher and not each.ended}
        self._seen |= there
        if self._seen == there:
            self._since = None
            return False
        self._since = self._since or now
        return now - self._since > GRACE


def _how(code: int) -> str:
    """code: as `subprocess` has it."""
    return f"ended with status {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"


def _pass(source: IO[bytes], to: Any) -> None:
    """Hand on bytes as they come. What is read by nobody any more is read here all the same, or ranks would
    wait."""
    descriptor = source.fileno()
    while chunk := os.read(descriptor, 1 << 16):
        _write(to, chunk)


def _pass_lines(source: IO[bytes], to: Any, said: list[bytes]) -> None:
    """Hand on lines, but for what the launcher says, which goes to `said`."""
    blank = b""  # one stands before what the launcher says, and belongs to it
    for line in source:
        if CHATTER.match(line):
            said.append(line)
            blank = b""
        elif line.strip():
            _write(to, blank + line)
            blank = b""
        else:
            blank += line
    _write(to, blank)


def _write(to: Any, data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or a terminal that has gone away
        getattr(to, "buffer", to).write(data)
        to.flush()
