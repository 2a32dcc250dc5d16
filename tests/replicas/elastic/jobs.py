"""Jobs whose members are threads, with links in memory and deaths where a test wants them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from amphw.host.config import RunConfig, resolve
from amphw.host.config_toml import to_toml
from amphw.host.devices import make_device
from amphw.models import get_model
from amphw.replicas.ako.message import Member
from amphw.replicas.elastic.coordinator import Coordinator
from amphw.replicas.elastic.member import OverError, Setting, live

SMALL = [
    "hidden=4", "batch=10", "train_instances=400", "valid_instances=50", "epochs=2", "target=none", "workers=1",
    "mode=pipeline", "replicas.strategy=ako", "trace=false",
]  # fmt: skip


class Killed(BaseException):
    """What a thread dies of, where a process would have been killed."""


class Network:
    """Where the links of one job meet. spoil: may change the list of messages that one message becomes."""

    def __init__(self, spoil: Callable[[np.ndarray], list[np.ndarray]] = lambda message: [message]):
        self.spoil = spoil
        self.boxes: dict[str, deque[np.ndarray]] = {}
        self._lock, self._made = threading.Lock(), 0

    def link(self, strike: Callable[[str], None] = lambda where: None) -> MemoryLink:
        with self._lock:
            address, self._made = f"memory-{self._made}", self._made + 1
            self.boxes[address] = deque()
        return MemoryLink(self, address, strike)


class MemoryLink:
    """See `Link`. strike: is called with the name of each method, and may raise."""

    ROOM = 2

    def __init__(self, network: Network, address: str, strike: Callable[[str], None]):
        self._network, self.address, self._strike = network, address, strike
        self._to: dict[Member, str] = {}
        self._open = True

    def connect(self, peer: Member, address: str) -> None:
        self._to[peer] = address

    def disconnect(self, peer: Member) -> None:
        self._to.pop(peer, None)

    def post(self, peer: Member, message: np.ndarray) -> bool:
        self._strike("post")
        box = self._network.boxes.get(self._to.get(peer, ""))
        if box is None or len(box) >= 8 * self.ROOM:
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
    """A coordinator as a member reaches it, whom death may meet before or after a call."""

    def __init__(self, board: Any, strike: Callable[[str], None]):
        self._board, self._strike = board, strike

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if threading.current_thread().name.startswith("beat"):
                return getattr(self._board, name)(*args)
            self._strike(name)
            found = getattr(self._board, name)(*args)
            self._strike(name)
            return found

        return call


class Job:
    """members threads train; `strike(number, where)` may raise `Killed`, after which a member comes back."""

    def __init__(
        self,
        folder: Path,
        members: int,
        settings: list[str] | None = None,
        minimum: int = 1,
        spoil: Callable[[np.ndarray], list[np.ndarray]] = lambda message: [message],
    ):
        self.folder, self.network = folder, Network(spoil)
        self.model = get_model("list-reduction")
        self.cfg: RunConfig[Any] = resolve(
            self.model.config, self.model.defaults, None, [*SMALL, *(settings or [])]
        )
        self.board = Coordinator(folder)
        train = self.cfg.train
        self.board.open(
            {
                "model": self.model.name,
                "settings": to_toml(self.cfg),
                "epochs": train.epochs,
                "metric": self.model.metric,
                "target": train.target,
                "patience": train.patience,
                "minimum": minimum,
                "start": members,
            }
        )
        self.threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []
        self.stops: list[threading.Event] = []

    def start(
        self, strike: Callable[[str], None] = lambda where: None, identity: dict[str, str] | None = None
    ) -> None:
        stop = threading.Event()
        setting = Setting(self.model, self.cfg, self.folder, identity or {"model": "x"}, stop=stop)
        self.stops.append(stop)

        def run() -> None:
            number = None
            try:
                while True:
                    numbers: list[int] = []
                    board = Struck(self.board, strike)
                    register = board.register

                    def registered(*args: Any, register: Any = register, numbers: Any = numbers) -> Any:
                        told = register(*args)
                        if "me" in told:
                            numbers.append(told["me"][0])
                        return told

                    board.register = registered  # type: ignore[method-assign]
                    try:
                        live(
                            setting, lambda: make_device("cpu"), board, lambda: self.network.link(strike), number
                        )
                        return
                    except Killed:
                        if numbers:
                            number = numbers[-1]
                        latest = self.board.table.latest(number) if number is not None else None
                        if latest is not None:
                            self.board.lost(latest.me, "killed")
            except OverError:
                return  # it has come too late
            except BaseException as error:
                self.errors.append(error)
                self.board.stop("error")

        thread = threading.Thread(target=run, name=f"member {len(self.threads)}")
        self.threads.append(thread)
        thread.start()

    def join(self, seconds: float = 60.0) -> None:
        for thread in self.threads:
            thread.join(seconds)
            assert not thread.is_alive(), thread
        if self.errors:
            raise self.errors[0]
