"""Members that are processes, on one machine or several: a ZeroMQ socket to each peer, and one for what
comes.

ZeroMQ moves bytes in a thread of its own while the member computes. A peer's socket holds at most two
messages (what is more waits with the member, where it is merged), and connects again by itself; nothing is
queued for a peer that is not there (IMMEDIATE), and no message outlives the member (LINGER).
"""

from __future__ import annotations

import socket

import numpy as np
import zmq

from amphw.replicas.ako.message import Member
from amphw.replicas.ako.strategy import UNDER_WAY


class Sockets:
    """See `Link`. host: under which peers find this machine."""

    def __init__(self, host: str):
        self._context = zmq.Context(1)
        self._inbox = self._context.socket(zmq.PULL)
        if ":" in host:
            self._inbox.setsockopt(zmq.IPV6, 1)
        port = self._inbox.bind_to_random_port(f"tcp://{socket.gethostbyname(host)}")
        self.address = f"tcp://{host}:{port}"
        self._to: dict[Member, zmq.Socket] = {}

    def connect(self, peer: Member, address: str) -> None:
        if peer in self._to:
            return
        out = self._context.socket(zmq.PUSH)
        for option, value in ((zmq.SNDHWM, UNDER_WAY), (zmq.IMMEDIATE, 1), (zmq.LINGER, 0)):
            out.setsockopt(option, value)
        out.connect(address)
        self._to[peer] = out

    def disconnect(self, peer: Member) -> None:
        if peer in self._to:
            self._to.pop(peer).close(linger=0)

    def post(self, peer: Member, message: np.ndarray) -> bool:
        try:
            self._to[peer].send(message, zmq.NOBLOCK, copy=False)
        except (KeyError, zmq.Again):
            return False
        return True

    def poll(self) -> list[np.ndarray]:
        found: list[np.ndarray] = []
        while True:
            try:
                frame = self._inbox.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return found
            found.append(np.frombuffer(frame.buffer, np.uint8))

    def close(self, linger: float = 0.0) -> None:
        for out in self._to.values():
            out.close(linger=round(1e3 * linger))
        self._inbox.close(linger=0)
        self._context.term()
