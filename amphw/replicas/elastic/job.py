"""A job under Ray, which starts its processes, on one machine or several, sees them die, and starts them
again.

A coordinator and every member are actors. Gradients do not go through Ray, whose objects cost too much at
this size, but from member to member (`sockets`). The process that has started a member watches over it: what
Ray says of its death is told the coordinator at once, and a new actor goes on as its next incarnation. Ray
does not start members again itself, as it then does not say whether one has died or cannot be reached.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from amphw.host.checkpoint import CheckpointError
from amphw.host.config import resolve
from amphw.host.devices import make_device
from amphw.host.run_folder import RunFolderError
from amphw.ir.device import Degrades, Device
from amphw.ir.errors import AmphwError, DeviceLostError
from amphw.replicas.agree import identity
from amphw.replicas.elastic.coordinator import Coordinator
from amphw.replicas.elastic.member import Setting, live
from amphw.replicas.elastic.settings import split, token
from amphw.replicas.elastic.sockets import Sockets
from amphw.replicas.transport import reason

NAMESPACE, COORDINATOR = "amphw", "coordinator"
LOOK = 0.2
"""Seconds between looks at members and at what was asked of this process."""
AWAY = 120.0
"""Seconds for which members go on asking a coordinator that does not answer."""
SHORTLY = 5.0
"""Seconds for which one that ends tries to tell the coordinator why."""
DEATHS, WITHIN = 5, 150.0
"""A member that dies so many times within so many seconds is given up."""
HEADLESS = 24 * 3600
"""Seconds for which a job goes on without Ray's head."""
STORE = 1 << 27
"""Bytes of Ray's object store, which is hardly used."""

Find = Callable[[str], Any]
"""Finds a model by its name."""


class JobError(AmphwError):
    """A job cannot be reached, or has lost all of its members; the message says what to do."""


@dataclass(frozen=True)
class Task:
    """What every member of a job is started with. model: as it was named; settings: the run's, as TOML.
    folder: of the run. find: finds the model."""

    model: str
    settings: str
    folder: str
    find: Find


_EXPECTED = (AmphwError, CheckpointError, RunFolderError)
"""Errors whose message says what was wrong, where, and what to do."""


_OF_ONE = (OSError, MemoryError, RunFolderError, CheckpointError)
"""What a machine or a file system does to one member; other errors all members would run into."""


class _Coordinator(Coordinator):
    """The actor of the job's coordinator. secret: what members know each other by; it is not written down."""

    def __init__(self, folder: Path, secret: bytes):
        super().__init__(folder)
        self._secret = secret

    def secret(self) -> bytes:
        return self._secret


class _Member:
    """The actor of one member, over its incarnations in this process."""

    def __init__(self, task: Task, device: str, spare: str):
        self._task, self._device, self._spare = task, device, spare
        self._make: Callable[[], Device] = partial(make_device, device)
        self._stop = threading.Event()

    def stop(self) -> None:
        """Leave in good order."""
        self._stop.set()

    def run(self, number: int) -> dict[str, str]:
        """Until the job has ended or this member has left -> {"error"}: what ended it otherwise; {"again"}
        beside it: that is about this process or its machine alone, and another one may do better."""
        board = Board()
        try:
            self._live(board, number)
        except BaseException as error:
            expected = isinstance(error, _EXPECTED)
            _tell_lost(board, number, f"it has failed: {str(error) or type(error).__name__}")
            told = {"error": str(error) if expected else reason(number, error)}
            return told | ({"again": "yes"} if isinstance(error, _OF_ONE) else {})
        return {}

    def _live(self, board: Board, number: int) -> None:
        task, secret = self._task, board.secret()
        model = task.find(task.model)
        cfg = resolve(model.config, tomllib.loads(task.settings), None, ())
        host = ray.util.get_node_ip_address()
        about = {"host": socket.gethostname(), "pid": os.getpid(), "device": self._device}
        setting = Setting(model, cfg, Path(task.folder), identity(model, cfg), about, self._stop)
        while True:
            try:
                live(setting, self._made, board, lambda: Sockets(host, secret), number)
                return
            except DeviceLostError as error:
                self._replace(error)
                board.lost_number(number, str(error))

    def _made(self) -> Device:
        self._last = self._make()
        return self._last

    def _replace(self, error: DeviceLostError) -> None:
        """The device is lost: the member goes on with the rest of it, or with the spare one."""
        rest = self._last.spare() if isinstance(self._last, Degrades) else None
        if rest is not None:
            self._make = lambda: rest
        elif self._spare:
            self._make, self._spare = partial(make_device, self._spare), ""
        else:
            raise error


class Board:
    """The coordinator as others reach it: a call is repeated until it answers, also where it starts again.
    patience: seconds for which one is.

    Raises JobError where it does not answer for that long, and what the coordinator has failed with."""

    def __init__(self, actor: Any = None, patience: float = AWAY):
        self._actor, self._patience = actor or ray.get_actor(COORDINATOR, namespace=NAMESPACE), patience

    def within(self, patience: float) -> Board:
        return Board(self._actor, patience)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            until = time.monotonic() + self._patience
            while True:
                try:
                    return ray.get(getattr(self._actor, name).remote(*args), timeout=self._patience)
                except RayTaskError as error:
                    raise _failure(error.cause) from error
                except RayError as error:
                    if time.monotonic() > until or not isinstance(error, RayActorError):
                        raise JobError(f"the coordinator of the job does not answer ({error})") from error
                    time.sleep(LOOK)

        return call


def _failure(cause: BaseException) -> BaseException:
    """What to raise where the coordinator has answered with an error."""
    if isinstance(cause, _EXPECTED):
        return cause
    return JobError(
        f"the coordinator of the job has failed with {type(cause).__name__}: {cause}; the messages of its "
        "process are in Ray's logs"
    )


def _tell_lost(board: Board, number: int, why: str) -> bool:
    """Try to tell the coordinator -> whether it knows; it may be what is gone, and otherwise notices by the
    member's silence."""
    try:
        board.within(SHORTLY).lost_number(number, why)
    except _EXPECTED:
        return False
    return True


class Cluster:
    """Ray, of this machine alone or, where RAY_ADDRESS or `address` says so, one that is there; until
    `close`.

    address: HOST:PORT, without a token, so that it may be shown to anybody. Raises JobError for an address at
    which there is none."""

    def __init__(self, members: int = 1, address: str = ""):
        _, given = split(address or os.environ.get("RAY_ADDRESS", ""))
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        # Without its head Ray ends all of its processes after a minute, and training goes on without one.
        os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(HEADLESS))
        quiet: dict[str, Any] = {
            "namespace": NAMESPACE,
            "logging_level": "ERROR",
            "log_to_driver": False,
            "include_dashboard": None if given else False,
        }
        if given:
            _check_address(given)
            quiet["address"] = given
        else:
            cores = max(members, os.cpu_count() or 1)
            quiet |= {"num_cpus": cores, "object_store_memory": STORE}
        try:
            context = ray.init(**quiet)
        except (ConnectionError, RuntimeError, ValueError, RayError) as error:
            raise JobError(_no_ray(given, error)) from error
        self.address = str(context.address_info["gcs_address"])

    @property
    def invitation(self) -> str:
        """The command with which others join. It has the job's token, so it is for the user alone."""
        known = token()
        return f"RAY_AUTH_TOKEN={known} " * bool(known) + f"amphw join {self.address}"

    def board(self) -> Board:
        """Raises JobError where no job is under way."""
        try:
            return Board()
        except ValueError:
            raise JobError(
                f"{self.address} is no job: Ray is there, and no amphw train --carrier ray is under way"
            ) from None

    def coordinate(self, folder: Path) -> Board:
        """Start a coordinator. Raises JobError where there is one already."""
        made = ray.remote(_Coordinator).options(
            name=COORDINATOR, num_cpus=0, max_restarts=-1, max_task_retries=-1
        )
        try:
            return Board(made.remote(folder, secrets.token_bytes(16)))
        except ValueError:
            raise JobError(
                f"a job is under way at {self.address} already; join it with amphw join {self.address}"
            ) from None

    def member(self, task: Task, device: str, spare: str, where: Any = "DEFAULT") -> Callable[[], Any]:
        """What makes an actor for one, as often as it dies. where: as Ray has scheduling strategies."""
        made = ray.remote(_Member).options(num_cpus=0, max_concurrency=2, scheduling_strategy=where)
        return partial(made.remote, task, device, spare)

    def spread(self, members: int) -> list[Any]:
        """Where each of so many is to run: on one machine after the other. Nothing is reserved there, as a
        reservation that does not fit waits for ever, without a word."""
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        if len(nodes) < 2:
            return ["DEFAULT"] * members
        return [NodeAffinitySchedulingStrategy(nodes[k % len(nodes)], soft=True) for k in range(members)]

    def here(self) -> Any:
        return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)

    def close(self) -> None:
        ray.shutdown()


def _no_ray(address: str, error: Exception) -> str:
    if not address:
        return f"Ray does not start on this machine ({error}); its logs are in /tmp/ray/session_latest/logs"
    return (
        f"there is no Ray at {address} that lets in this machine ({error}); set RAY_AUTH_TOKEN to the token "
        "that the job has printed, and on another machine than the job's first write: ray start "
        f"--address={address}"
    )


def _check_address(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        if address in ("auto", "local"):
            return
        raise JobError(
            f"{address!r} is no address of a job; it has the form HOST:PORT, or TOKEN@HOST:PORT, as the job "
            "has printed it"
        )
    try:
        socket.create_connection((host, int(port)), timeout=5.0).close()
    except OSError as error:
        raise JobError(
            f"no job answers at {address} ({error}); take the address that amphw train --carrier ray has "
            "printed, while it trains"
        ) from error


class Watch:
    """Members that this process has started. say: tells the user one line."""

    def __init__(self, board: Board, say: Callable[[str], None]):
        self._board, self._say, self._stopping = board, say, False
        self._makes: dict[int, Callable[[], Any]] = {}
        self._actors: dict[int, Any] = {}
        self._running: dict[Any, int] = {}
        self._died: dict[int, list[float]] = {}

    def start(self, number: int, make: Callable[[], Any]) -> None:
        """make: as `Cluster.member`."""
        self._makes[number], self._actors[number] = make, make()
        self._running[self._actors[number].run.remote(number)] = number

    def stop(self) -> None:
        """These members leave in good order; one that dies meanwhile does not come back."""
        self._stopping = True
        for actor in self._actors.values():
            actor.stop.remote()

    def abandon(self, why: str) -> None:
        """End those that still run at once, and have the coordinator know."""
        left = list(self._running.values())
        self._running.clear()
        for number in left:
            ray.kill(self._actors[number])
        for number in left:
            if not _tell_lost(self._board, number, why):
                return

    def look(self) -> bool:
        """See who has ended or died, and start those again -> whether any is left. Raises JobError for what
        ended one that did not die, and where all have died too often."""
        ended, _ = ray.wait(list(self._running), timeout=LOOK)
        for run in ended:
            number = self._running.pop(run)
            try:
                told: Mapping[str, str] = ray.get(run)
            except RayActorError:
                self._again(number)
                continue
            if "again" in told:
                self._say(f"member {number} has failed, and begins again: {told['error']}")
                self._again(number, told["error"])
            elif "error" in told:
                raise JobError(told["error"])
        return bool(self._running)

    def _again(self, number: int, why: str = "its process died") -> None:
        ray.kill(self._actors[number])  # one that only could not be reached may still train
        self._board.lost_number(number, why)
        if self._stopping:
            return
        now = time.monotonic()
        recent = [when for when in self._died.get(number, []) if now - when < WITHIN] + [now]
        self._died[number] = recent
        if len(recent) < DEATHS:
            self.start(number, self._makes[number])
            return
        self._board.give_up(number, f"it died {DEATHS} times within {WITHIN:g} s")
        self._say(f"member {number} has died {DEATHS} times within {WITHIN:g} s; the job goes on without it")
        if not self._running:
            raise JobError(
                f"all members have died again and again, the last one as {why}; see the messages of their "
                "processes in Ray"
            )


def run(
    watch: Watch, asked: Callable[[], bool], stop: Callable[[], None], follow: Callable[[], None]
) -> None:
    """Watch until all have ended. asked: whether the user wants them to; stop: has them end. follow: is
    called between looks."""
    stopping = False
    try:
        while watch.look():
            if asked() and not stopping:
                stopping = True
                stop()
            follow()
    except BaseException as error:
        watch.abandon(f"its command has ended ({str(error) or type(error).__name__})")
        raise
    follow()


def task_of(job: Mapping[str, Any], folder: Path, find: Find) -> Task:
    """As the job's coordinator knows it."""
    return Task(job["model"], job["settings"], str(folder), find)
