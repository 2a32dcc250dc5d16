"""Every element of every gradient reaches every peer exactly once, and with failures at most once.

Gradients are integers that say what they are: element e of round t of sender s counts in a digit of its own,
so that a sum shows what it is made of.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amphw.replicas.ako.clocks import Clocks, Heard
from amphw.replicas.ako.message import Layout, Member, Message
from amphw.replicas.ako.sender import Outbox, Sender

KIND = np.dtype(object)
"""Integers of any length: round t counts as 16 ** t."""
BASE = 16


def spans(sizes: list[int]) -> list[slice]:
    ends = np.cumsum([0, *sizes]).tolist()
    return [slice(a, b) for a, b in zip(ends, ends[1:], strict=False)]


def gradient(size: int, number: int) -> np.ndarray:
    return np.array([BASE**number] * size, dtype=object)


def counted(nodes: int, number: int) -> np.ndarray:
    return np.array([[number + 1, 1]] * nodes, np.int64)


class Peer:
    """What one receiver has been given by one sender."""

    def __init__(self, me: Member, sender: Member, size: int, nodes: int):
        self.heard = Heard(me, sender)
        self.sums = np.array([0] * size, dtype=object)
        self.counts: Counter[tuple[int, int]] = Counter()
        self.nodes = nodes

    def take(self, message: Message) -> bool:
        if not self.heard.take(message):
            return False
        if message.values is not None:
            self.sums[message.layout.part(message.partition)] += message.values
        self.counts[message.layout.number, message.partition] += int(message.counts[0, 1])
        return True

    def times(self, number: int) -> list[int]:
        """How often each element of round `number` came."""
        return [value // BASE**number % BASE for value in self.sums]


sizes = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@settings(max_examples=60)
@given(sizes=sizes, peers=st.integers(1, 6), partitions=st.integers(1, 8), rounds=st.integers(0, 20))
def test_after_p_rounds_and_a_drain_each_gradient_has_come_once(
    sizes: list[int], peers: int, partitions: int, rounds: int
) -> None:
    """p below, at and above the number of peers, and above that of all numbers."""
    size, me = sum(sizes), Member(0)
    others = [Member(k) for k in range(1, peers + 1)]
    sender = Sender(me, others, spans(sizes), partitions, KIND)
    found = {peer: Peer(peer, me, size, len(sizes)) for peer in others}
    for number in range(rounds):
        for message in sender.advance(gradient(size, number), counted(len(sizes), number)):
            assert message.layout.part(message.partition).stop <= size
            assert found[message.to].take(message)
        assert all(peer.heard.clock == number + 1 for peer in found.values())
        full = number + 1 - (partitions - 1)  # what p consecutive rounds have brought in full
        for peer in found.values():
            assert all(set(peer.times(k)) == {1} for k in range(full))
            assert all(max(peer.times(k)) <= 1 for k in range(number + 1))
    for message in sender.drain():
        assert found[message.to].take(message)
    for peer in found.values():
        assert all(set(peer.times(k)) == {1} for k in range(rounds))
        assert all(updates == rounds for updates in peer.counts.values())
        assert peer.heard.clock == rounds
    assert sender.drain() == []


@settings(max_examples=30)
@given(sizes=sizes, peers=st.integers(1, 4), partitions=st.integers(1, 6), rounds=st.integers(1, 15))
def test_without_accumulation_a_message_has_its_last_round_alone(
    sizes: list[int], peers: int, partitions: int, rounds: int
) -> None:
    """The others are lost, and the clocks of receivers go on all the same."""
    size, me = sum(sizes), Member(0)
    others = [Member(k) for k in range(1, peers + 1)]
    sender = Sender(me, others, spans(sizes), partitions, KIND, accumulates=False)
    found = {peer: Peer(peer, me, size, len(sizes)) for peer in others}
    for number in range(rounds):
        for message in sender.advance(gradient(size, number), counted(len(sizes), number)):
            assert message.values is None or set(message.values) <= {BASE**number}
            assert message.counts[:, 0].tolist() == [number + 1] * len(sizes)
            assert found[message.to].take(message)
        assert all(peer.heard.clock == number + 1 for peer in found.values())
    for peer in found.values():
        came = [sum(peer.times(number)) for number in range(rounds)]
        assert sum(came) <= rounds * (-(-size // partitions))


@settings(max_examples=60)
@given(data=st.data(), peers=st.integers(1, 4), size=st.integers(1, 12))
def test_partitions_change_and_links_are_slow_and_still_each_comes_once(
    data: st.DataObject, peers: int, size: int
) -> None:
    """What waits for a link is merged, which changes neither values nor rows."""
    me, others = Member(peers), [Member(k) for k in range(peers)]
    partitions = data.draw(st.integers(1, 6))
    sender = Sender(me, others, spans([size]), partitions, KIND)
    found = {peer: Peer(peer, me, size, 1) for peer in others}
    boxes = {peer: Outbox() for peer in others}
    rows: Counter[Member] = Counter()
    made, most_waiting = data.draw(st.integers(1, 25)), partitions

    def deliver(peer: Member, most: int) -> None:
        while len(boxes[peer]) and most:
            message = boxes[peer].next()
            assert found[peer].take(message)
            rows[peer] += int(message.counts[0, 0]) * (
                message.layout.part(message.partition).stop - message.layout.part(message.partition).start
            )
            most -= 1

    for number in range(made):
        if data.draw(st.integers(0, 4)) == 0:
            partitions = data.draw(st.integers(1, 6))
            for message in sender.resplit(partitions, others):
                boxes[message.to].put(message)
            most_waiting += partitions
        for message in sender.advance(gradient(size, number), counted(1, number)):
            boxes[message.to].put(message)
        for peer in others:
            deliver(peer, data.draw(st.integers(0, 3)))
            assert len(boxes[peer]) <= most_waiting
            assert found[peer].heard.clock <= number + 1
    for message in sender.drain():
        boxes[message.to].put(message)
    for peer in others:
        deliver(peer, 10**6)
        assert all(set(found[peer].times(k)) == {1} for k in range(made))
        assert rows[peer] == size * sum(range(1, made + 1))
        assert found[peer].heard.clock == made


@settings(max_examples=60)
@given(data=st.data(), size=st.integers(1, 10), partitions=st.integers(1, 5))
def test_with_members_that_fail_and_return_nothing_comes_twice(
    data: st.DataObject, size: int, partitions: int
) -> None:
    """What was under way may be lost, or come late, to an incarnation that it was not meant for."""
    me = Member(0)
    others = [Member(1), Member(2)]
    sender = Sender(me, others, spans([size]), partitions, KIND)
    found = {peer: Peer(peer, me, size, 1) for peer in others}
    joined = dict.fromkeys(others, 0)
    under_way: list[Message] = []
    made = 0
    for _ in range(data.draw(st.integers(1, 25))):
        what = data.draw(st.sampled_from(["round", "round", "round", "fail", "repeat"]))
        if what == "round":
            under_way += sender.advance(gradient(size, made), counted(1, made))
            made += 1
        elif what == "fail":
            gone = data.draw(st.sampled_from(others))
            back = Member(gone.number, gone.incarnation + 1)
            others = [back if peer == gone else peer for peer in others]
            found[back], joined[back] = Peer(back, me, size, 1), made
            under_way += sender.resplit(partitions, others)
        elif under_way:  # the network says something again
            under_way.append(data.draw(st.sampled_from(under_way)))
        while under_way and data.draw(st.booleans()):
            message = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            now = next(peer for peer in others if peer.number == message.to.number)
            if not data.draw(st.integers(0, 9)):
                continue  # it is lost
            took = found[now].take(message)
            assert not took or message.to == now
    for peer in others:
        assert all(max(found[peer].times(k), default=0) <= 1 for k in range(made))
        assert all(set(found[peer].times(k)) == {0} for k in range(joined[peer]))  # it began with these


def test_what_comes_from_an_incarnation_that_has_ended_is_refused() -> None:
    me = Member(0)
    layout = Layout(0, 1, 1, 4)
    new = Message(Member(1, 1), me, layout, 0, 1, 1, counted(1, 0), np.ones(4))
    heard = Heard(me, Member(1))
    assert heard.take(replace(new, source=Member(1, 0)))
    assert heard.take(new) and heard.clock == 1  # it came back, and its rounds begin again
    assert not heard.take(replace(new, source=Member(1, 0), first=2, last=2))
    assert not heard.take(replace(new, to=Member(0, 1), first=2, last=2))
    assert not heard.take(replace(new, source=Member(2), first=2, last=2))
    assert heard.clock == 1


def test_a_clock_is_the_highest_round_without_a_gap() -> None:
    """Two partitions; those of the second round come last, as one message with those of the fourth."""
    me = Member(0)
    layout = Layout(0, 1, 2, 4)

    def message(partition: int, first: int, last: int) -> Message:
        return Message(Member(1), me, layout, partition, first, last, counted(1, 0), np.ones(2))

    heard = Heard(me, Member(1))
    assert heard.take(message(1, 1, 1)) and heard.clock == 1
    assert heard.take(message(1, 2, 3)) and heard.clock == 1
    assert heard.take(message(0, 1, 4)) and heard.clock == 4
    assert not heard.take(message(0, 3, 4))


def test_rounds_without_rows_are_announced_without_values() -> None:
    """Two nodes of two numbers; the second one has rows."""
    sender = Sender(Member(0), [Member(1)], spans([2, 2]), 2, np.dtype(np.float64))
    for round in (1, 2):
        (found,) = sender.advance(np.array([0.0, 0, 1, 1]), np.array([[0, 0], [3, 1]]))
        assert (found.first, found.last) == (1, round)
        if found.partition == 0:
            assert found.values is None
        else:
            assert found.values is not None and found.values.tolist() == [round, round]
        assert found.counts.tolist() == [[0, 0], [3 * round, round]]


@given(bound=st.integers(0, 5), speeds=st.lists(st.integers(1, 9), min_size=2, max_size=4), data=st.data())
def test_nobody_is_further_ahead_than_the_bound_and_one(
    bound: int, speeds: list[int], data: st.DataObject
) -> None:
    """Members of different speed, each as it is let; the last one ends early and holds nobody."""
    n, members = len(speeds), [Member(k) for k in range(len(speeds))]
    senders = [Sender(m, [o for o in members if o != m], spans([4]), 2, KIND) for m in members]
    clocks = [Clocks(m, [o for o in members if o != m], bound) for m in members]
    order = data.draw(st.lists(st.sampled_from([k for k in range(n) for _ in range(speeds[k])]), max_size=60))
    over = data.draw(st.integers(0, 60))
    for step, k in enumerate(order):
        if k == n - 1 and step >= over:
            for other in clocks[:-1]:
                other.heard[k].finished = True
            continue
        if not clocks[k].may_advance():
            continue
        clocks[k].advance()
        for message in senders[k].advance(gradient(4, 0), counted(1, 0)):
            assert clocks[message.to.number].heard[k].take(message)
    for mine in clocks:
        assert max(mine.leads, default=0) <= bound + 1
    slowest = min(range(n), key=lambda k: clocks[k].own)
    assert clocks[slowest].may_advance()  # no deadlock


def test_a_round_that_was_not_begun_leads_nobody() -> None:
    clocks = Clocks(Member(0), [Member(1)], 1)
    clocks.advance()
    clocks.advance(begun=False)  # what was left of the round before, where no other one may begin
    assert clocks.leads == {1: 1} and clocks.own == 2


def test_a_member_without_others_waits_for_nobody() -> None:
    alone = Clocks(Member(0), [Member(1)], 0)
    alone.heard[1].finished = True
    for _ in range(3):
        assert alone.may_advance()
        alone.advance()
    assert alone.own == 3 and not alone.leads


@pytest.mark.parametrize("partitions", [1, 2, 3, 5])
def test_a_round_sends_about_a_pth_to_each(partitions: int) -> None:
    sender = Sender(Member(0), [Member(k) for k in (1, 2)], spans([7]), partitions, np.dtype(np.float32))
    for _ in range(partitions):
        found = sender.advance(np.ones(7, np.float32), counted(1, 0))
        assert [m.to.number for m in found] == [1, 2]
        assert all(
            m.values is not None and m.values.size in (7 // partitions, -(-7 // partitions)) for m in found
        )
