"""Traces of ranks: what is noted of messages, how all reach the first rank, and clocks that differ."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import amphw.replicas.trace as module
from amphw.host.rank_trace import RankTrace
from amphw.host.records import Slice
from amphw.replicas.collectives import all_reduce
from amphw.replicas.threads import ThreadTransport
from amphw.replicas.trace import Recorded, Recorder, gather_traces
from tests.replicas.test_collectives import on_each

AHEAD = 1000.0
"""Seconds that the clock of each rank is ahead of the one before it."""


def gathered(ranks: int) -> dict[int, list[RankTrace]]:
    found: dict[int, list[RankTrace]] = {}

    def rank(transport: ThreadTransport) -> None:
        here.rank = transport.rank
        recorded = Recorded(transport)
        all_reduce(recorded, np.arange(6.0))
        slices = [Slice(0, "head", "update", 1.0, 2.0, 3)]
        mine = RankTrace(transport.rank, slices, messages=list(recorded.messages))
        found[transport.rank] = gather_traces(recorded, mine)
        assert (recorded.sent, recorded.received) == (transport.sent, transport.received)

    on_each(ranks, rank)
    return found


here = threading.local()


def test_every_message_of_the_ring_arrives_under_the_number_that_it_was_sent_with() -> None:
    found = gathered(3)
    assert [len(found[rank]) for rank in range(3)] == [3, 0, 0]
    assert [trace.rank for trace in found[0]] == [0, 1, 2]
    sent, received = (
        {
            (trace.rank, m.peer, m.number, m.bytes) if sends else (m.peer, trace.rank, m.number, m.bytes)
            for trace in found[0]
            for m in trace.messages
            if m.sends is sends
        }
        for sends in (True, False)
    )
    assert sent == received and len(sent) == 3 * 4
    assert all(trace.slices == [Slice(0, "head", "update", 1.0, 2.0, 3)] for trace in found[0])


@pytest.mark.parametrize("apart", [False, True])
def test_clocks_of_other_machines_are_brought_together(monkeypatch: pytest.MonkeyPatch, apart: bool) -> None:
    clock = SimpleNamespace(perf_counter=lambda: time.perf_counter() + AHEAD * here.rank)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "_machine", lambda: here.rank if apart else 7)
    ahead = [trace.offset_us / 1e6 for trace in gathered(3)[0]]
    if apart:
        assert ahead == pytest.approx([0.0, AHEAD, 2 * AHEAD], abs=AHEAD / 10)
    else:
        assert ahead == [0.0, 0.0, 0.0]


def test_a_machine_that_tells_nothing_of_itself_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(perf_counter=lambda: time.perf_counter() + AHEAD * here.rank)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "_machine", lambda: 0)
    ahead = [trace.offset_us / 1e6 for trace in gathered(2)[0]]
    assert ahead == pytest.approx([0.0, AHEAD], abs=AHEAD / 10)


def test_a_phase_has_the_bytes_that_were_moved_in_it() -> None:
    recorder = Recorder()
    recorder.add("transfer", 1.0, 2.0, {"W": 10})
    recorder.add("wait", 2.0, 2.5)
    recorder.add("transfer", 2.5, 3.0, {"W": 25, "E": 4})
    assert [(p.name, p.duration_us, p.bytes) for p in recorder.phases] == [
        ("transfer", 1e6, {"W": 10}),
        ("wait", 0.5e6, {}),
        ("transfer", 0.5e6, {"W": 15, "E": 4}),
    ]
