"""`amphw estimate --ranks`: ranks that train together, in simulated time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.daily import daily

SMALL = ["language-model"]
for _each in (
    "vocabulary=300",
    "embedding=4",
    "hidden=4",
    "samples=8",
    "sentences=200",
    "train_instances=40",
):
    SMALL += ["--set", _each]


ROWS = ["--set", "replicas.sparse_from=0"]
"""Of small tables, too, ranks in step exchange rows."""


def estimated(amphw, *arguments: str) -> dict:
    done = amphw("estimate", *SMALL, *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("strategy", daily(["hybrid", "outer"], ["allreduce", "servers", "average"]))
def test_strategies_have_throughput_seconds_and_bytes(amphw, strategy: str) -> None:
    options = ["--ranks", "4", "--strategy", strategy, "--nic", "1Mb/s", "--rate", "100/s"]
    options += [] if strategy in ("average", "outer") else ROWS
    found = estimated(amphw, *options)
    assert found["strategy"] == strategy and found["ranks"] == 4 == found["machines"]
    assert 0 < found["throughput"] < 400
    assert found["efficiency"] == pytest.approx(found["throughput"] / 400)
    assert set(found["seconds"]) == {"compute", "wait", "transfer"}
    assert sum(found["seconds"].values()) == pytest.approx(found["step_s"], rel=0.1)
    assert found["bytes"]["embed.E"]["sent"] > 0
    assert found == estimated(amphw, *options)


@pytest.mark.parametrize("strategy", ["ako", "all-to-all", "servers-async", "group"])
@pytest.mark.parametrize("mode", daily(["async"], ["sync"]))
def test_ranks_at_their_own_pace_have_rounds(amphw, strategy: str, mode: str) -> None:
    options = ["--ranks", "3", "--strategy", strategy, "--nic", "1Mb/s", "--rate", "100/s"]
    options += ["--set", f"mode={mode}"]
    found = estimated(amphw, *options)
    assert 0 < found["throughput"] <= 300.001
    assert sum(found["seconds"].values()) == pytest.approx(found["step_s"], rel=0.01)
    assert found["bytes"]["embed.E"]["sent"] > 0
    own = found["own"]
    assert len(own["clocks"]) == 3
    if strategy != "group":
        assert own["staleness_max"] <= own["bound"] + 1
    assert found == estimated(amphw, *options)


def test_splits_of_ranks_are_tried(amphw) -> None:
    options = ["--ranks", "4", "--strategy", "servers-async", "--nic", "1Mb/s", "--rate", "100/s"]
    found = estimated(amphw, *options, "--best-split")
    assert {(each["workers"], each["servers"]) for each in found["splits"]} >= {(4, 0), (3, 1), (2, 2)}
    best = max(found["splits"], key=lambda each: each["throughput"])
    assert found["throughput"] == best["throughput"]
    text = amphw("estimate", *SMALL, *options, "--best-split").stdout
    assert "Splits into ranks that train and ranks that serve" in " ".join(text.split())


def test_a_rank_is_as_fast_as_the_same_devices_are_alone(amphw) -> None:
    """Nothing else takes time where nothing limits the interfaces."""
    found = estimated(amphw, "--ranks", "2", "--flops", "1GFLOPS", "--devices", "1")
    assert found["efficiency"] == pytest.approx(1.0)
    assert found["throughput"] == pytest.approx(2 * found["alone"])


@pytest.mark.parametrize("strategy", ["servers", "average"])
def test_ranks_of_a_machine_share_its_interface(amphw, strategy: str) -> None:
    options = ["--ranks", "4", "--nic", "1Mb/s", "--rate", "100/s", "--strategy", strategy]
    shared = estimated(amphw, *options, "--set", "replicas.machine_ranks=2")
    assert shared["machines"] == 2
    assert shared["step_s"] > estimated(amphw, *options)["step_s"]


def test_tables_say_where_a_step_goes(amphw) -> None:
    done = amphw("estimate", *SMALL, "--ranks", "2", "--rate", "100/s", "--nic", "1Gb/s+20us")
    assert done.exit_code == 0, done.stderr
    text = " ".join(done.stdout.split())
    for part in ("2 ranks on 2 machines, strategy hybrid", "compute", "nic: stated: --nic 1Gb/s+20us"):
        assert part in text


@pytest.mark.parametrize("strategy", ["hybrid", "average"])
def test_a_rank_is_measured_here(amphw, monkeypatch: pytest.MonkeyPatch, strategy: str) -> None:
    monkeypatch.setattr("amphw.replicas.measured.SECONDS", 0.05)
    found = estimated(amphw, "--ranks", "2", "--strategy", strategy, "--measure", "cpu", "--nic", "1Gb/s")
    assert found["origin"]["rate"]["origin"] == "measured" == found["origin"]["exchange"]["origin"]
    assert found["alone"] > 0 and found["efficiency"] > 0
    # What packing and adding up take is counted, so the slow link is not all that a step has but computing.
    faster = estimated(amphw, "--ranks", "2", "--strategy", strategy, "--measure", "cpu")
    assert faster["seconds"]["transfer"] > 0.0


def test_an_estimate_is_compared_with_ranks_that_trained(amphw, tmp_path: Path) -> None:
    settings = ["--set", "mode=pipeline", "--set", "epochs=1", "--set", "target=none"]
    done = amphw("train", *SMALL, *settings, "--ranks", "2", "--json", "--out", str(tmp_path / "run"))
    assert done.exit_code == 0, done.stderr
    (tmp_path / "two.json").write_text(done.stdout, encoding="utf-8")
    options = ["--ranks", "2", "--rate", "100/s", "--beside", str(tmp_path / "two.json")]
    found = estimated(amphw, *options)
    assert found["measured"] > 0
    assert found["error"] == pytest.approx(found["throughput"] / found["measured"] - 1.0)
    text = amphw("estimate", *SMALL, *options).stdout
    assert "Trained:" in text and "the estimate is" in text
    for others, said in (
        (["--ranks", "3"], "its ranks is 2, and 3 is estimated"),
        (["--strategy", "servers"], "its strategy is hybrid, and servers is estimated"),
    ):
        refused = amphw("estimate", *SMALL, *options, *others)
        assert refused.exit_code != 0 and said in " ".join(refused.stderr.split())
    (tmp_path / "two.json").write_text("{}", encoding="utf-8")
    refused = amphw("estimate", *SMALL, *options)
    assert refused.exit_code != 0 and "is not what `amphw train MODEL --ranks N --json` prints" in " ".join(
        refused.stderr.split()
    )


AVERAGE = ["--ranks", "2", "--rate", "1/s", "--strategy", "average", "--set", "replicas.every_updates=3"]


def test_updates_between_exchanges_are_windows_where_a_barrier_updates(amphw) -> None:
    found = estimated(amphw, *AVERAGE, "--set", "mode=pipeline", "--set", "pipeline_depth=4")
    assert found["seconds"]["compute"] == pytest.approx(3 * 4)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--measure", "cpu"], "--measure is for --ranks"),
        (["--ranks", "2", "--rate", "1/s", "--measure", "cpu"], "--rate is not for --measure"),
        (["--ranks", "2", "--measure", "cpu", "--flops", "1TFLOPS"], "--flops is not for --measure"),
        (["--ranks", "2", "--measure", "gpu7"], "there is no device"),
        (["--nic", "1Gb/s"], "--nic is for --ranks"),
        (["--best-split"], "--best-split is for --ranks"),
        (["--ranks", "2", "--rate", "1/s", "--best-split"], "write --strategy servers-async"),
        (["--ranks", "2", "--strategy", "ako", "--measure", "cpu"], "say how fast one is with --rate"),
        (["--ranks", "2", "--grow"], "--grow is not for --ranks"),
        (["--ranks", "2", "--rate", "1/s", "--flops", "1TFLOPS"], "--flops is not for --rate"),
        (["--ranks", "2", "--rate", "1/s", "--nic", "fast"], "--nic: "),
        (["--ranks", "2", "--rate", "1/s", "--strategy", "gossip"], "gossip"),
        (["--ranks", "2", "--rate", "1/s", "--set", "replicas.servers=2"], "take fewer servers"),
        ([*AVERAGE, "--set", "mode=async"], "how many instances that takes is known once nodes have updated"),
    ],
)
def test_what_cannot_be_is_said(amphw, options: list[str], said: str) -> None:
    done = amphw("estimate", *SMALL, *options)
    assert done.exit_code != 0
    assert said in " ".join(done.stderr.replace("│", " ").split())
