"""The sides of a comparison: who runs what, on how many threads, in how many processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import amphw
from amphw.bench.errors import BenchError
from amphw.bench.load import Usage, UsageMeter
from amphw.bench.subject import GRACE_S, Subject, SubjectError

PEERS = ("torch", "pyg", "dynet", "jax")
FOLDER = "AMPHW_PEERS"
"""Names the folder of the peers' code, which is not part of the package."""
SHARED = "AMPHW_BENCH"
"""Tells a peer's process where this folder is, of which it takes `forms` and `serving`."""
HOW_TO_GET = (
    "the peers' code is not part of the package: get amphw's source, and name its folder benchmarks/peers "
    f"in {FOLDER}"
)

_PREPARE_S = 900.0  # compiling every shape on a slow machine


def peers_folder() -> Path:
    """Where the peers' code lies: as AMPHW_PEERS says, else beside the package. Raises BenchError."""
    named = os.environ.get(FOLDER)
    folder = Path(named) if named else Path(amphw.__file__).parents[1] / "benchmarks" / "peers"
    if (folder / "__main__.py").is_file():
        return folder
    raise BenchError(f"{FOLDER} is {named}, where no peers are; {HOW_TO_GET}" if named else HOW_TO_GET)


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Setup:
    """Who a side is and how much of the machine it has. peer: "amphw" is our own side."""

    peer: str
    threads: int
    processes: int = 1

    def __str__(self) -> str:
        count = f"{self.processes} processes" if self.processes > 1 else _plural(self.threads, "thread")
        return f"{self.peer}, {count}"


def setups(peer: str, count: int, device: str = "cpu") -> list[Setup]:
    """How a peer may use `count` processors: one, all in one process, or a process on each; on another device
    one drives it."""
    alone = [Setup(peer, 1)]
    if count == 1 or device != "cpu":
        return alone
    # DyNet's autobatching has one thread.
    together = [] if peer == "dynet" else [Setup(peer, count)]
    return [*alone, *together, Setup(peer, 1, count)]


@dataclass
class Side:
    """One or more processes that work at the same time, without talking to one another."""

    setup: Setup
    subjects: list[Subject] = field(default_factory=list)

    @property
    def pids(self) -> list[int]:
        return [each.pid for each in self.subjects]

    @property
    def first(self) -> dict[str, Any]:
        """What the (first) process said when it was ready."""
        return self.subjects[0].first

    def alive(self) -> bool:
        return all(each.alive() for each in self.subjects)

    def prepare(self, form: str, batch: int) -> None:
        self._all("prepare", _PREPARE_S, form=form, batch=batch)

    def run(self, seconds: float, mode: str = "train") -> tuple[float, Usage]:
        """Work for so long -> instances a second, all processes together, and who used the processors."""
        meter = UsageMeter(self.pids)
        answers = self._all("run", seconds + GRACE_S, seconds=seconds, mode=mode)
        return sum(a["count"] / a["seconds"] for a in answers), meter.read()

    def _all(self, do: str, timeout: float, **values: Any) -> list[dict[str, Any]]:
        """Ask all at once. An answer that nobody takes would be taken for that to the next request, so every
        process is listened to before the first error is raised; where one is dead, so are all."""
        answers, errors, asked = [], [], []
        for each in self.subjects:
            try:
                each.send(do, **values)
                asked.append(each)
            except SubjectError as error:
                errors.append(error)
        for each in asked:
            try:
                answers.append(each.answer(timeout))
            except SubjectError as error:
                errors.append(error)
        if errors:
            if not self.alive():
                for each in self.subjects:
                    each.close(patience=0)
            raise errors[0]
        return answers


@dataclass(frozen=True)
class PeerInterpreter:
    """The Python that peers run in. versions: of what it can import, by peer. absent: why not, by peer."""

    python: str
    versions: Mapping[str, str]
    absent: Mapping[str, str]
    compiler: str | None

    @classmethod
    def probe(cls, python: str) -> PeerInterpreter:
        """Ask an interpreter what it has. Raises BenchError if it cannot be run, or peers are not here."""
        folder = peers_folder()
        try:
            done = subprocess.run(
                [python, str(folder), "--probe"],
                capture_output=True,
                text=True,
                timeout=300,
                env={**os.environ, **_peer_environment(1)},
                check=False,
            )
            found = json.loads(done.stdout.strip().splitlines()[-1])
            return cls(python, found["versions"], found["absent"], found["compiler"])
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BenchError(f"the peers' interpreter {python!r} cannot be run: {error}") from error
        except (ValueError, IndexError, KeyError, TypeError) as error:
            words = (done.stderr or done.stdout).strip()[-300:]
            raise BenchError(
                f"the peers' interpreter {python!r} does not say what it has; is it a Python of 3.10 or "
                f"newer with numpy? Its last words: {words}"
            ) from error


@contextmanager
def our_side(spec: Mapping[str, Any], workers: int) -> Iterator[Side]:
    """Our side, ready and warm; `spec` as in `amphw.bench.ours`."""
    command = [sys.executable, "-m", "amphw.bench.ours", json.dumps(spec)]
    with Subject("amphw", command, _our_environment()) as subject:
        subject.ready(_PREPARE_S)
        yield Side(Setup("amphw", workers), [subject])


@contextmanager
def peak_side() -> Iterator[Side]:
    """What measures the machine's sgemm peak, ready."""
    with Subject("sgemm peak", [sys.executable, "-m", "amphw.bench.peak"], _our_environment()) as subject:
        subject.ready()
        yield Side(Setup("sgemm", processors()), [subject])


@contextmanager
def peer_side(python: str, setup: Setup, spec: Mapping[str, Any], folder: Path) -> Iterator[Side]:
    """A peer, ready but with nothing prepared. spec: as in `peers.server`, less what `setup` says."""
    with ExitStack() as stack:
        side = Side(setup)
        for number in range(setup.processes):
            path = folder / f"{setup.peer}-{setup.threads}-{number}.json"
            own = {"peer": setup.peer, "threads": setup.threads, "share": [number, setup.processes]}
            path.write_text(json.dumps({**spec, **own}), encoding="utf-8")
            command = [python, str(peers_folder()), str(path)]
            side.subjects.append(
                stack.enter_context(Subject(str(setup), command, _peer_environment(setup.threads)))
            )
        for subject in side.subjects:
            subject.ready()
        yield side


def _our_environment() -> dict[str, str]:
    root = str(Path(amphw.__file__).parent.parent)
    return {"PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])}


def _peer_environment(threads: int) -> dict[str, str]:
    """What makes peers fast, and keeps them from using more than they are given."""
    return {
        SHARED: str(Path(__file__).parent),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        # Compiled code is made in the process itself: helpers would work on while others are measured.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # Memory is kept rather than given back and faulted in again for every large tensor.
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        "MALLOC_MMAP_THRESHOLD_": str(1 << 40),
    }


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
