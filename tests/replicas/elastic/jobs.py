"""Jobs whose members are threads, with links in memory and deaths where a test wants them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from amphw.host.config import resolve
from amphw.host.config_toml import to_toml
from amphw.host.devices import make_device
from amphw.ir.device import Device
from amphw.models import get_model
from amphw.replicas.ako.message import Member
from amphw.replicas.elastic.audit import Audit
from amphw.replicas.elastic.board import OverError
from amphw.replicas.elastic.coordinator import Coordinator
from amphw.replicas.elastic.member import Setting, live

SMALL = [
    "hidden=4", "batch=3", "train_instances=400", "valid_instances=50", "epochs=2", "target=none",
    "workers=1", "mode=pipeline", "replicas.strategy=ako", "trace=false",
]  # fmt: skip
EPOCH = 136
"""Instances of the small list reduction with batches of three."""
TOY = [
    *("pipeline_depth=2", "epochs=12", "target=none", "optimizer=sgd", "lr=0.05", "min_update_interval=10"),
    "replicas.strategy=ako",
]
Strike = Callable[[str], None]
Spoil = Callable[[np.ndarray], Sequence[np.ndarray]]


class Killed(BaseException):
    """What a thread dies of, where a process would have been killed."""


def unharmed(where: str) -> None:
    """A strike that hits nobody."""


def always() -> threading.Event:
    """An event that is set: what everybody reaches who is on the coordinator's side."""
    found = threading.Event()
    found.set()
    return found


class Network:
    """Where the links of one job meet. spoil: the messages that one message becomes. whole: set, but while
    the members that are `far` reach neither the coordinator nor the other members. refused: messages that
    could not be sent for that."""

    def __init__(self, spoil: Spoil):
        self.spoil = spoil
        self.boxes: dict[str, deque[np.ndarray]] = {}
        self.far: set[str] = set()
        self.refused = 0
        self.whole = threading.Event()
        self.whole.set()
        self._lock, self._made = threading.Lock(), 0

    def link(self, strike: Strike, far: bool) -> MemoryLink:
        with self._lock:
            address, self._made = f"memory-{self._made}", self._made + 1
            self.boxes[address] = deque()
            if far:
                self.far.add(address)
        return MemoryLink(self, address, strike)

    def reaches(self, one: str, other: str) -> bool:
        return self.whole.is_set() or (one in self.far) == (other in self.far)


class MemoryLink:
    """See `Link`. strike: is called with the name of a method, and may raise."""

    ROOM = 4
    refused = 0

    def __init__(self, network: Network, address: str, strike: Strike):
        self._network, self.address, self._strike = network, address, strike
        self._to: dict[Member, str] = {}

    def connect(self, peer: Member, address: str) -> None:
        self._to[peer] = address

    def disconnect(self, peer: Member) -> None:
        self._to.pop(peer, None)

    def post(self, peer: Member, message: np.ndarray) -> bool:
        self._strike("post")
        to = self._to.get(peer, "")
        box = self._network.boxes.get(to)
        if not self._network.reaches(self.address, to):
            self._network.refused += 1
            return False
        if box is None or len(box) >= self.ROOM:
            return False
        box.extend(self._network.spoil(message))
        return True

    def poll(self) -> list[np.ndarray]:
        self._strike("poll")
        box = self._network.boxes[self.address]
        return [box.popleft() for _ in range(len(box))]

    def close(self, linger: float = 0.0) -> None:
        self._network.boxes.pop(self.address, None)


class Struck:
    """A coordinator as a member reaches it, whom death may meet before a call and after it. reached: set
    while questions and answers get through; they wait for that."""

    def __init__(self, board: Any, strike: Strike, numbers: list[int], reached: threading.Event):
        self._board, self._strike, self._numbers, self._reached = board, strike, numbers, reached

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            watched = not threading.current_thread().name.startswith("beat")
            if watched:
                self._strike(name)
            assert self._reached.wait(120.0)
            found = getattr(self._board, name)(*args)
            assert self._reached.wait(120.0)
            if name == "register" and "me" in found:
                self._numbers.append(found["me"][0])
            if watched:
                self._strike(name)
            return found

        return call


class Job:
    """Members that train until the job ends, and come back where they are killed; `with` waits for them."""

    def __init__(
        self,
        folder: Path,
        members: int,
        *settings: str,
        minimum: int = 1,
        model: Any = None,
        make: Callable[[], Device] = lambda: make_device("cpu"),
        spoil: Spoil = lambda message: [message],
        identity: Mapping[str, str] = MappingProxyType({"model": "x"}),
    ):
        self.folder, self.network, self._make = folder, Network(spoil), make
        self.identity = identity
        self.model = model or get_model("list-reduction")
        small = SMALL if model is None else []
        self.cfg: Any = resolve(self.model.config, self.model.defaults, None, [*small, *settings])
        self.board = Coordinator(folder)
        self.board.open(self.about(members, minimum))
        self.threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []

    def about(self, members: int, minimum: int = 1) -> dict[str, Any]:
        """As `Coordinator.open` takes it."""
        train = self.cfg.train
        return {
            "model": self.model.name,
            "settings": to_toml(self.cfg),
            "epochs": train.epochs,
            "metric": self.model.metric,
            "target": train.target,
            "patience": train.patience,
            "minimum": minimum,
            "start": members,
            "identity": dict(self.identity),
        }

    def start(self, strike: Strike = unharmed, far: bool = False, **setting: Any) -> threading.Event:
        """Another member -> what makes it leave. far: on the other side, where the network splits."""
        about = Setting(self.model, self.cfg, self.folder, setting.pop("identity", self.identity), **setting)
        name = f"member {len(self.threads)}"
        arguments = about, strike, far
        self.threads.append(threading.Thread(target=self._run, args=arguments, name=name, daemon=True))
        self.threads[-1].start()
        return about.stop

    def _run(self, about: Setting, strike: Strike, far: bool) -> None:
        numbers: list[int] = []
        reached = self.network.whole if far else always()
        try:
            while True:
                try:
                    board = Struck(self.board, strike, numbers, reached)
                    number = numbers[-1] if numbers else None
                    live(about, self._make, board, lambda: self.network.link(strike, far), number)
                    return
                except Killed:
                    if numbers:
                        self.board.lost_number(numbers[-1], "killed")
        except OverError:
            return  # it has come too late
        except BaseException as error:
            self.errors.append(error)
            self.board.stop("error")

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None:
            self.board.stop("error")
        for thread in self.threads:
            thread.join(120.0)
            assert not thread.is_alive(), thread
        if self.errors:  # also where a test has waited in vain, for which this is the reason
            raise self.errors[0]


def all_count(found: Audit, epochs: int = 2) -> None:
    assert (found.lost, found.doubled) == (0, 0), found.wrong
    assert found.epochs == {str(k + 1): EPOCH for k in range(epochs)}


def slowly(where: str) -> None:
    """So that no member has done everything before another one has looked up."""
    if where == "poll":
        time.sleep(5e-4)


def until(true: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(1e-3)
