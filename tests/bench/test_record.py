"""The record: its keys are a contract, and it says itself whether its figures hold."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from amphw.bench.load import Usage
from amphw.bench.plan import Plan
from amphw.bench.record import KEYS, Measured, make_record, why_invalid
from amphw.bench.report import comparison_report
from amphw.bench.rounds import Entrant
from amphw.bench.save import name, save
from amphw.bench.sides import PeerInterpreter, Setup, Side
from amphw.bench.workloads import WORKLOADS
from amphw.host.records import json_safe

PEER_KEYS = {"name", "threads", "processes", "instances_per_s"}
FIRST = {
    "max_active_keys": 8,
    "workers": 2,
    "intervals": {"cell": 600},
    "flops": {"forward": 1e9, "backward": 2e9},
}


@dataclass
class Said:
    """A subject that has said something."""

    first: dict[str, Any] = field(default_factory=lambda: dict(FIRST))
    pid: int = 0


def entrant(
    setup: Setup, rates: list[float], every: int = 100, own: float = 2.0, form: str = "folded"
) -> Entrant:
    usages = [Usage(1.0, 2.0, own, 2)]
    side = Side(setup, [Said()])  # type: ignore[list-item]
    return Entrant(side, form, every, rates={"train": rates}, usages=usages)


def measured(rounds: int = 3, own: float = 2.0, **changed: Any) -> Measured:
    plan = Plan(WORKLOADS["list-reduction"], [], (100,), ["torch", "dynet"], "python", rounds=rounds)
    parts: dict[str, Any] = {
        "ours": [entrant(Setup("amphw", 2), [30.0, 40.0, 50.0], own=own)],
        "peers": [
            entrant(Setup("torch", 1), [10.0, 10.0, 11.0]),
            entrant(Setup("torch", 2), [19.0, 20.0, 21.0], form="folded+compiled"),
            entrant(Setup("torch", 1, 2), [25.0, 25.0, 25.0]),
            entrant(Setup("torch", 1), [90.0], every=25),
        ],
        "peak": entrant(Setup("sgemm", 2), [230e9, 240e9, 200e9], every=0),
        "interpreter": PeerInterpreter("python", {"torch": "2"}, {"dynet": "ModuleNotFoundError"}, "g++"),
    }
    return Measured(plan, **(parts | changed))


def test_the_contract() -> None:
    record = make_record(measured())
    assert set(KEYS) <= record.keys()
    assert record["workload"] == "list-reduction"
    assert record["ours"] == 40.0
    assert (record["max_active_keys"], record["min_update_interval"]) == (8, 100)
    assert all(peer.keys() >= PEER_KEYS for peer in record["peers"])
    assert [(p["name"], p["threads"], p["processes"], p["instances_per_s"]) for p in record["peers"]] == [
        ("torch", 1, 1, 10.0),
        ("torch", 2, 1, 20.0),
        ("torch", 1, 2, 25.0),
        ("torch", 1, 1, 90.0),
    ]
    assert record["valid"] is True and record["invalid_because"] == []
    json.dumps(json_safe(record), allow_nan=False)


def test_ratios_are_to_the_fastest_peer_at_the_same_interval() -> None:
    record = make_record(measured())
    assert record["ratio_best_single_process"] == 2.0  # 90 is at another interval
    assert record["ratio_two_processes"] == pytest.approx(1.6)
    (comparison,) = record["comparisons"]
    assert comparison["best_single_process"]["threads"] == 2
    assert comparison["ratio_best_single_process_rounds"]["low"] == pytest.approx(30 / 19)


def test_the_share_of_the_peak_is_that_of_its_best_round() -> None:
    assert make_record(measured())["sgemm_share"] == pytest.approx(40 * 3e9 / 240e9)


def test_foreign_load_invalidates() -> None:
    record = make_record(measured(own=1.0))
    assert record["foreign_load"] == pytest.approx(1 / 12)
    assert record["valid"] is False
    assert record["invalid_because"] == ["other processes used 8% of the processors, allowed are 5%"]


def test_foreign_load_that_cannot_be_told_invalidates() -> None:
    m = measured()
    m.peak.usages = [Usage(1.0, None, 0.0, 2)]
    assert why_invalid(m) == ["the load by other processes cannot be told on this system"]


def test_few_rounds_and_lost_peers_invalidate() -> None:
    m = measured(rounds=2)
    m.peers[2].lost = "it ended with code 139"
    reasons = why_invalid(m)
    assert reasons == [
        "there were 2 rounds, at least 3 make a median",
        "torch, 2 processes: folded, every 100 was lost on the way",
    ]
    assert make_record(m)["lost"] == {"torch, 2 processes: folded, every 100": "it ended with code 139"}


def test_a_share_of_the_peak_that_cannot_be_invalidates() -> None:
    m = measured(peak=entrant(Setup("sgemm", 2), [100e9, 119e9, 90e9], every=0))
    assert make_record(m)["sgemm_share"] > 1
    assert why_invalid(m) == ["the share of the peak is above 1: the peak was measured under load"]


def test_without_peers_there_are_no_ratios() -> None:
    record = make_record(measured(peers=[], interpreter=None))
    assert record["ours"] == 40.0 and record["peers"] == []
    assert record["ratio_best_single_process"] is None and record["ratio_two_processes"] is None
    assert record["invalid_because"] == ["no peer was measured"]


def test_absent_peers_are_told_with_the_reason() -> None:
    assert make_record(measured())["absent"] == {"dynet": "ModuleNotFoundError"}
    plan = Plan(WORKLOADS["mlp"], [], (100,), ["pyg"], "python")
    interpreter = PeerInterpreter("python", {"pyg": "2"}, {}, "g++")
    m = measured()
    record = make_record(Measured(plan, m.ours, [], m.peak, interpreter))
    assert record["absent"] == {"pyg": "has no form of mlp that counts here"}


def test_people_read_the_same() -> None:
    from rich.console import Console

    console = Console(width=160, record=True, file=open("/dev/null", "w"))
    with console.file:
        console.print(comparison_report(make_record(measured(own=1.0))))
    text = console.export_text()
    assert "2.00 times the best single process (torch, 2 threads, folded+compiled)" in text
    assert "1.60 times the processes that never synchronise (torch, 2 processes, folded)" in text
    assert "50.0% of the sgemm peak" in text
    assert "dynet is absent: ModuleNotFoundError" in text
    assert "these figures are not valid: other processes used 8%" in text


def test_a_record_has_a_file_name_of_its_own(tmp_path) -> None:
    record = make_record(measured())
    record["date"], record["environment"]["cpu"] = "2026-01-02", {"name": "AMD EPYC (tm)", "usable": 2}
    assert name(record) == "list-reduction-2026-01-02-amd-epyc-tm-2.json"
    assert name(record | {"mode": "per instance"}).startswith("list-reduction-per-instance-2026")
    folder = save(record, tmp_path / "results")
    assert folder == tmp_path / "results" / name(record)
    assert save(record, tmp_path / "x.json") == tmp_path / "x.json"
    assert json.loads(folder.read_text())["ours"] == 40.0
