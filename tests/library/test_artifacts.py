"""What a run leaves for the eye."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from amphw.host.records import RunSummary, Slice
from amphw.host.run_folder import RunFolder
from amphw.host.trace import Trace
from amphw.ir.device import Findings
from amphw.library.artifacts import HOST, write_artifacts

pytestmark = pytest.mark.usefixtures("drawn")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.create(tmp_path / "run", "m")
    made.write_json("summary.json", summary())
    return made


def summary() -> RunSummary:
    return RunSummary(
        model="m",
        device="d",
        epochs=0,
        instances_per_s=1.0,
        target_reached=False,
        valid={},
        staleness={"p50": 0.0, "p99": 0.0},
        messages={"forward": 0, "backward": 0, "lost": 0},
        run_dir="",
    )


def test_without_epochs_and_without_a_trace_there_is_still_a_report(folder) -> None:
    assert set(write_artifacts(folder, summary(), None, Findings())) == {"report"}
    assert set(write_artifacts(folder, summary(), Trace(), Findings())) == {"report"}


def test_the_chart_begins_at_the_first_slice_and_shows_workers_only(folder) -> None:
    trace = Trace()
    day = 86_400e6  # microseconds: a clock that began long before
    trace.extend(
        [
            Slice(0, "cell", "forward", day, 10.0, 4),
            Slice(1, "head", "backward", day + 10, 10.0, 4),
            Slice(HOST, "cell", "update", day + 20, 5.0, 4),
        ]
    )
    written = write_artifacts(folder, summary(), trace, Findings())
    chart = written["gantt"].read_text()
    assert "worker 0" in chart and "worker 1" in chart and "worker -1" not in chart
    assert "time from 0 ms into the trace" in chart
    events = json.loads(gzip.decompress(written["trace"].read_bytes()))["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {"worker 0", "worker 1", "controller"}


def test_a_trace_of_the_host_alone_has_no_chart(folder) -> None:
    trace = Trace()
    trace.add(Slice(HOST, "cell", "update", 0.0, 5.0, 4))
    assert "gantt" not in write_artifacts(folder, summary(), trace, Findings())


def test_what_a_device_finds_lies_in_the_folder_and_in_the_report(folder) -> None:
    found = Findings(
        {"x.json": b"{}", "x.svg": b"<svg/>"}, {"x.svg": "What it looks like"}, remarks=("Odd.",)
    )
    written = write_artifacts(folder, summary(), None, found)
    assert written["x.json"].read_bytes() == b"{}" and written["x.svg"] == folder.file("x.svg")
    page = written["report"].read_text()
    assert "What it looks like" in page and "Odd." in page


def test_what_a_device_tells_in_a_table_is_in_the_report(folder) -> None:
    found = Findings({}, {}, "what is lost", ("tensor", "lost"), (("W", "3 %"),), ("One more is fine.",))
    page = write_artifacts(folder, summary(), None, found)["report"].read_text()
    assert "<h2>What is lost</h2>" in page and '<th scope="row">W</th><td>3 %</td>' in page
    assert page.count("One more is fine.") == 1 and page.index("3 %") < page.index("One more is fine.")
