"""A trace is bounded, thread-safe, right about utilisation, and a well-formed Chrome trace."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from amphw.host.records import Slice
from amphw.host.trace import Trace


def events(path: Path, kind: str) -> list[dict[str, Any]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [event for event in json.loads(data)["traceEvents"] if event["ph"] == kind]


def test_slices_become_a_thread_per_worker(tmp_path: Path) -> None:
    trace = Trace()
    trace.add(Slice(0, "linear", "forward", 10.0, 5.0, rows=3))
    trace.add(Slice(2, "loss", "backward", 12.3456789, 1.0, rows=1))
    trace.write(tmp_path / "t.json", name="rnn on cpu", worker_names={2: "board"})
    named = {(event["name"], event["tid"]): event["args"] for event in events(tmp_path / "t.json", "M")}
    assert named[("process_name", 0)] == {"name": "rnn on cpu"}
    assert named[("thread_name", 1)] == {"name": "worker 0"}
    assert named[("thread_name", 3)] == {"name": "board"}
    first, second = events(tmp_path / "t.json", "X")
    assert (first["ts"], first["dur"], first["tid"], first["name"], first["cat"]) == (
        10,
        5,
        1,
        "linear",
        "forward",
    )
    assert first["args"] == {"rows": 3, "node": "linear", "direction": "forward"}
    assert second["ts"] == 12.346


def test_flows_join_producer_to_every_consumer(tmp_path: Path) -> None:
    trace = Trace()
    trace.add(Slice(0, "embed", "forward", 0.0, 10.0, rows=2, flow_out=7))
    trace.add(Slice(1, "left", "forward", 12.0, 5.0, rows=1, flow_in=7))
    trace.add(Slice(2, "right", "forward", 13.0, 5.0, rows=1, flow_in=7))
    trace.add(Slice(2, "orphan", "forward", 20.0, 5.0, rows=1, flow_in=99))
    trace.write(tmp_path / "t.json")
    starts, ends = events(tmp_path / "t.json", "s"), events(tmp_path / "t.json", "f")
    assert len(starts) == len(ends) == 2
    assert len({event["id"] for event in starts}) == 2
    assert {event["id"] for event in starts} == {event["id"] for event in ends}
    for event in starts:  # inside the producer's slice, or a viewer binds it to the next one
        assert event["tid"] == 1
        assert 0 <= event["ts"] < 10
    assert [(event["tid"], event["ts"], event["bp"]) for event in ends] == [(2, 12.0, "e"), (3, 13.0, "e")]


def test_counter_of_keys(tmp_path: Path) -> None:
    trace = Trace()
    trace.count_keys(1.0, 4)
    trace.count_keys(2.0, 3)
    trace.write(tmp_path / "t.json.gz")
    found = [(event["ts"], event["args"]["keys"]) for event in events(tmp_path / "t.json.gz", "C")]
    assert found == [(1.0, 4), (2.0, 3)]


def test_gzip_does_not_depend_on_the_clock(tmp_path: Path) -> None:
    trace = Trace()
    trace.add(Slice(0, "a", "update", 0.0, 1.0, rows=1))
    trace.write(tmp_path / "1.json.gz")
    trace.write(tmp_path / "2.json.gz")
    assert (tmp_path / "1.json.gz").read_bytes() == (tmp_path / "2.json.gz").read_bytes()


def test_the_newest_slices_are_kept_and_the_rest_counted(tmp_path: Path) -> None:
    trace = Trace(limit=10)
    trace.extend(Slice(0, str(number), "forward", number, 1.0, rows=1) for number in range(25))
    assert len(trace) == 10
    assert trace.dropped == 15
    assert [piece.node for piece in trace.slices()] == [str(number) for number in range(15, 25)]
    trace.write(tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text())["otherData"] == {"slices": 10, "dropped": 15}


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="trace limit is 0; it must be at least 1"):
        Trace(limit=0)


def test_utilisation_over_a_window() -> None:
    trace = Trace()
    trace.add(Slice(0, "a", "forward", 0.0, 10.0, rows=1))
    trace.add(Slice(0, "a", "backward", 15.0, 10.0, rows=1))
    trace.add(Slice(1, "b", "forward", -5.0, 100.0, rows=1))
    assert trace.utilisation(0.0, 20.0, 3) == [0.75, 1.0, 0.0]
    assert trace.utilisation(5.0, 5.0, 2) == [0.0, 0.0]


def test_utilisation_does_not_count_dropped_time_as_idle() -> None:
    trace = Trace(limit=2)
    trace.extend(Slice(0, "a", "forward", 10.0 * number, 10.0, rows=1) for number in range(10))
    assert trace.utilisation(0.0, 100.0, 1) == [1.0]
    assert trace.utilisation(0.0, 30.0, 1) == [0.0]  # nothing of this window is known


def test_threads_lose_nothing() -> None:
    trace = Trace(limit=1000)
    count = 4

    def work(worker: int) -> None:
        for number in range(500):
            trace.add(Slice(worker, "a", "forward", number, 1.0, rows=1))
            trace.count_keys(number, worker)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(trace) == 1000
    assert trace.dropped == 1000
