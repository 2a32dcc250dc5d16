"""Links that are sockets: messages keep their order, and nobody waits for a peer that is slow or gone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("zmq")

import zmq

from amphw.replicas.ako.message import Member
from amphw.replicas.elastic.audit import audit
from amphw.replicas.elastic.sockets import Sockets
from tests.replicas.elastic.jobs import Job, all_count, slowly, until

A, B = Member(0), Member(1)
SECRET = b"between friends"


@pytest.fixture
def pair() -> Iterator[tuple[Sockets, Sockets]]:
    one, other = Sockets("127.0.0.1", SECRET), Sockets("127.0.0.1", SECRET)
    one.connect(B, other.address)
    yield one, other
    one.close()
    other.close()


def test_messages_keep_their_order(pair: tuple[Sockets, Sockets]) -> None:
    one, other = pair
    came: list[int] = []
    for number in range(50):
        until(lambda number=number: one.post(B, np.full(1000, number, np.uint8)))
        came += [int(message[0]) for message in other.poll()]
    until(lambda: came.extend(int(message[0]) for message in other.poll()) or len(came) == 50)
    assert came == list(range(50))


def test_a_peer_that_takes_nothing_holds_up_nobody(pair: tuple[Sockets, Sockets]) -> None:
    one, _ = pair
    until(lambda: one.post(B, np.zeros(1, np.uint8)))
    large = np.zeros(1 << 20, np.uint8)
    until(lambda: not one.post(B, large))


def test_nothing_is_kept_for_a_peer_that_is_gone(pair: tuple[Sockets, Sockets]) -> None:
    one, other = pair
    until(lambda: one.post(B, np.zeros(1, np.uint8)))
    assert not one.post(A, np.zeros(1, np.uint8))  # nobody that it knows
    one.disconnect(B)
    assert not one.post(B, np.zeros(1, np.uint8))
    time.sleep(0.1)
    assert len(other.poll()) == 1


@pytest.mark.parametrize(
    "parts", [[b"x" * 80], [b"x" * 15, b"x"], [SECRET], [SECRET, b"x", b"x"], [b"", b""]]
)
def test_what_a_stranger_sends_is_refused(parts: list[bytes], pair: tuple[Sockets, Sockets]) -> None:
    one, other = pair
    with zmq.Context() as context, context.socket(zmq.PUSH) as stranger:
        stranger.connect(other.address)
        stranger.send_multipart(parts)
        until(lambda: not other.poll() and other.refused)
    until(lambda: one.post(B, np.ones(1, np.uint8)))
    came: list[np.ndarray] = []
    until(lambda: came.extend(other.poll()) or came)
    assert came[0].tolist() == [1] and other.refused == 1


def test_an_address_may_be_of_the_sixth_version() -> None:
    try:
        other = Sockets("::1", SECRET)
    except zmq.ZMQError:
        pytest.skip("this machine has no IPv6")
    one = Sockets("::1", SECRET)
    one.connect(B, other.address)
    until(lambda: one.post(B, np.ones(1, np.uint8)))
    until(other.poll)
    one.close()
    other.close()


def test_members_train_over_sockets(tmp_path: Path) -> None:
    with Job(tmp_path, 3) as job:
        job.network.link = lambda strike, far: Sockets("127.0.0.1", SECRET)  # type: ignore[method-assign, assignment, return-value]
        for _ in range(3):
            job.start(slowly)
        until(lambda: job.board.table.leases.closed or job.board.table.ended)
        job.start()
    all_count(audit(tmp_path))
