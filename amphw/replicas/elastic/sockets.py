"""Members that are processes, on one machine or several: a ZeroMQ socket to each peer, and one for what
comes.

ZeroMQ moves bytes in a thread of its own while the member computes. A peer's socket holds at most two
messages (what is more waits with the member, where it is merged), and connects again by itself; nothing is
queued for a peer that is not there (IMMEDIATE), and no message outlives the member (LINGER).

Whoever reaches a port may send to it, so each message has the job's secret in a frame before its own, and
what comes without is refused. That keeps strangers out of a job, and not those who can read its network:
ZeroMQ's CURVE would, and takes ten times as long to move a byte.
"""

from __future__ import annotations

import hmac
import socket

import numpy as np
import zmq

from amphw.replicas.ako.message import Member
from amphw.replicas.ako.strategy import UNDER_WAY


class Sockets:
    """See `Link`. host: under which peers find this machine, a name or an address of IPv4 or IPv6. secret: of
    the job."""

    def __init__(self, host: str, secret: bytes):
        self._secret, self.refused = secret, 0
        self._context = zmq.Context(1)
        found = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
        numeric = f"[{found}]" if ":" in found else found
        self._inbox = self._made(zmq.PULL, numeric)
        # So few of each peer wait here that what is more stays with its sender, which merges it.
        self._inbox.setsockopt(zmq.RCVHWM, UNDER_WAY)
        port = self._inbox.bind_to_random_port(f"tcp://{numeric}")
        self.address = f"tcp://{numeric}:{port}"
        self._to: dict[Member, zmq.Socket] = {}

    def _made(self, kind: int, address: str) -> zmq.Socket:
        found = self._context.socket(kind)
        found.setsockopt(zmq.IPV6, "[" in address)
        return found

    def connect(self, peer: Member, address: str) -> None:
        if peer in self._to:
            return
        out = self._made(zmq.PUSH, address)
        for option, value in ((zmq.SNDHWM, UNDER_WAY), (zmq.IMMEDIATE, 1), (zmq.LINGER, 0)):
            out.setsockopt(option, value)
        out.connect(address)
        self._to[peer] = out

    def disconnect(self, peer: Member) -> None:
        if peer in self._to:
            self._to.pop(peer).close(linger=0)

    def post(self, peer: Member, message: np.ndarray) -> bool:
        try:
            self._to[peer].send_multipart([self._secret, message], zmq.NOBLOCK, copy=False)
        except (KeyError, zmq.Again):
            return False
        return True

    def poll(self) -> list[np.ndarray]:
        found: list[np.ndarray] = []
        while True:
            try:
                frames = self._inbox.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return found
            if len(frames) == 2 and hmac.compare_digest(frames[0].bytes, self._secret):
                found.append(np.frombuffer(frames[1].buffer, np.uint8))
            else:
                self.refused += 1

    def close(self, linger: float = 0.0) -> None:
        for out in self._to.values():
            out.close(linger=round(1e3 * linger))
        self._inbox.close(linger=0)
        self._context.term()
