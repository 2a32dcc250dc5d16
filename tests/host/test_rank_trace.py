"""The trace of several ranks: a process for each, on one clock, and arrows that begin and end in slices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amphw.host.rank_trace import MESSAGES, SYNCHRONISATION, Message, Phase, RankTrace
from amphw.host.records import Slice
from amphw.host.trace import Trace

AHEAD = 1e6
"""What the second rank's clock is ahead, in microseconds."""


def written(tmp_path: Path, *ranks: RankTrace) -> list[dict[str, Any]]:
    trace = Trace()
    trace.add(Slice(0, "embed", "forward", 0.0, 10.0, rows=2, flow_out=7))
    trace.add(Slice(0, "head", "forward", 11.0, 5.0, rows=2, flow_in=7))
    trace.write(tmp_path / "t.json", "rnn", None, ranks)
    events: list[dict[str, Any]] = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    return events


def first() -> RankTrace:
    sends = [Message(True, 1, number, 20.0 + 10 * number, 2.0, 64) for number in (0, 1)]
    return RankTrace(0, phases=[Phase("transfer", 19.0, 30.0, {"head.W": 128})], messages=sends)


def second() -> RankTrace:
    """It has forgotten the first message, and received one of which the sender has forgotten."""
    receives = [Message(False, 0, number, AHEAD + 25.0 + 10 * number, 8.0, 64) for number in (1, 2)]
    return RankTrace(1, [Slice(0, "head", "update", AHEAD + 50.0, 3.0, 1)], [], receives, AHEAD)


def test_each_rank_is_a_process_on_one_clock(tmp_path: Path) -> None:
    events = written(tmp_path, first(), second())
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {1: "rank 0, rnn", 2: "rank 1, rnn"}
    (update,) = (e for e in events if e.get("cat") == "update")
    assert (update["pid"], update["ts"]) == (2, 50.0)
    (transfer,) = (e for e in events if e.get("cat") == "synchronisation")
    assert (transfer["pid"], transfer["tid"], transfer["ts"], transfer["dur"]) == (1, SYNCHRONISATION, 19, 30)
    assert transfer["args"] == {"bytes": {"head.W": 128}}


def test_an_arrow_goes_from_a_message_sent_to_the_same_one_received(tmp_path: Path) -> None:
    events = written(tmp_path, first(), second())
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys() and len(starts) == 2  # the other one is within the first rank
    (arrow,) = (number for number, e in starts.items() if e["cat"] == "rank message")
    start, end = starts[arrow], ends[arrow]
    assert (start["pid"], start["tid"], start["ts"]) == (1, MESSAGES, 30.0)
    assert (end["pid"], end["tid"]) == (2, MESSAGES)
    assert end["ts"] == pytest.approx(43.0, abs=0.01) and end["ts"] < 43.0


def test_alone_nothing_is_said_of_ranks(tmp_path: Path) -> None:
    names = [e["args"]["name"] for e in written(tmp_path) if e["name"] == "process_name"]
    assert names == ["rnn"]


def test_a_rank_survives_its_way_to_the_first() -> None:
    assert RankTrace.from_json(json.loads(json.dumps(second().to_json()))) == second()
