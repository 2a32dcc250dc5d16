"""`amphw estimate --target`, `--budget` and `--grow`."""

from __future__ import annotations

import json

import pytest

from amphw.cpu_runtime import planes
from tests.cli.test_estimate import GGNN, KEYS, SMALL, estimated

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")

FLOPS = ["--flops", "1GFLOPS"]


def test_a_target_is_reached_by_what_is_proposed(amphw) -> None:
    found = estimated(amphw, *SMALL, *FLOPS, "--link", "1Gb/s", "--target", "20k/s")
    assert KEYS <= set(found) and found["version"] == 1
    proposal = found["proposal"]
    chosen = proposal["configuration"]
    assert proposal["reached"] and proposal["target"] == 20_000
    assert chosen["throughput"] == min(chosen["calculated"], chosen["played"]) >= 20_000
    assert len(found["devices"]) == chosen["devices"] and found["keys"] == chosen["keys"]
    assert chosen["flops"] <= 1e9 and chosen["total_rate"] == chosen["devices"] * chosen["flops"]
    assert chosen["bandwidth"] == 1e9  # as it was given: no slower one is looked for
    assert set(proposal["placement"]) == {n["name"] for n in found["per_node"]}
    assert {each["by"] for each in proposal["cheaper"]} <= {"rate", "keys"}
    assert all(each["configuration"]["throughput"] < 20_000 for each in proposal["cheaper"])
    assert len(proposal["looked"]) <= proposal["calculated"]
    assert found["origin"]["devices"] == {"origin": "assumed", "how": "proposed by the search"}
    assert found["origin"]["link"]["how"] == "--link 1Gb/s"


def test_the_proposal_can_be_asked_for_by_hand(amphw) -> None:
    found = estimated(amphw, *SMALL, *FLOPS, "--target", "20k/s")["proposal"]["configuration"]
    network = ["--flops", f"{found['flops']!r}FLOPS", "--devices", found["devices"]]
    counts = ["--keys", found["keys"], "--replicas", found["replicas"]]
    again = estimated(amphw, *SMALL, *network, *counts, "--method", "events")
    assert again["throughput"] == pytest.approx(found["calculated"])
    assert again["played"]["throughput"] == pytest.approx(found["played"])


def test_a_target_beyond_the_budget_is_no_error(amphw) -> None:
    found = estimated(amphw, *SMALL, *FLOPS, "--target", "1G/s", "--budget", "devices=2,link=1Gb/s")
    proposal = found["proposal"]
    assert proposal["reached"] is False and proposal["best"]["limit"]["words"]
    assert proposal["budget"] == {"devices": "2", "link": "1Gb/s"}
    assert proposal["configuration"]["bandwidth"] <= 1e9
    done = amphw("estimate", *SMALL, *FLOPS, "--target", "1G/s", "--budget", "devices=2")
    assert done.exit_code == 0, done.stderr
    assert "Not reached: the most is " in done.stdout


def test_the_most_within_a_budget_as_a_table(amphw) -> None:
    done = amphw("estimate", *SMALL, *FLOPS, "--budget", "devices=3,link=1Gb/s,memory=1GB")
    assert done.exit_code == 0, done.stderr
    text = " ".join(done.stdout.split())
    for part in (
        "list-reduction: the most within devices=3, link=1Gb/s, memory=1GB",
        "less rate gives",
        "Placement:",
        "Updates between a firing and its gradient, on average: cell ",
        "The most: ",
        "Proposed, the cheapest within 1 % of it: devices: ",
        "What costs: the rate of all devices, then the bandwidth of all links, then instances in flight.",
        "sequences/s; calculated",
    ):
        assert part in text
    assert (
        text.index("The most: ")
        < text.index("Proposed, ")
        < text.index("less rate")
        < text.index("Placement:")
    )


def test_growth_is_told_and_shown(amphw) -> None:
    found = estimated(amphw, *SMALL, *FLOPS, "--replicas", "1", "--grow")
    growth = found["growth"]
    assert KEYS <= set(found) and found["proposal"] is None
    assert [step["devices"] for step in growth["steps"]] == [*(1 << k for k in range(10)), 1000]
    assert growth["why"]["of"] == "device" and growth["why"]["nodes"][0] == "cell"
    done = amphw("estimate", *SMALL, *FLOPS, "--replicas", "1", "--grow")
    assert done.exit_code == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "16 instances in flight in each pipeline" in text and "█" in text
    assert f"It stops at {growth['stops']} device" in text and "cell: a node is on one device." in text
    assert text.index("It stops at ") < text.index("devices pipelines")


@pytest.mark.thorough
def test_growth_without_an_end(amphw) -> None:
    done = amphw("estimate", *GGNN, "--flops", "1TFLOPS", "--keys", "1", "--grow")
    assert done.exit_code == 0, done.stderr
    assert "It does not stop up to 1,000 devices." in done.stdout
    assert "which has no parameters and so one copy" in done.stdout


@pytest.mark.parametrize(
    "more, complaint",
    [
        (["--target", "20000"], "--target: '20000' is no number of instances a second: write it as 20k/s"),
        (["--target", "0/s"], "--target: '0/s' is no number of instances a second"),
        (["--target", "-5/s"], "--target: '-5/s' is no number of instances a second"),
        (["--target", "inf/s"], "--target: 'inf/s' is no number of instances a second"),
        (["--target", "1e999/s"], "--target: '1e999/s' is no number of instances a second"),
        (["--budget", "devices=0"], "--budget: a budget with devices=0: expected a whole number above 0"),
        (["--budget", "lanes=2"], "--budget: a budget has no 'lanes=2': write it as devices=8,link=10Gb/s"),
        (["--budget", "devices=1,devices=2"], "--budget: a budget with devices twice: 1 and 2"),
        (["--budget", "link=10"], "--budget: '10' is no number of bits a second"),
        (["--budget", "dsps=56"], "a budget of dsps=56 is for devices that are circuits"),
        (["--budget", "devices=2", "--devices", "2"], "devices is given by --devices, too"),
        (["--budget", "link=1Gb/s", "--link", "1Gb/s"], "link is given by --link, too"),
        (["--budget", "memory=1GB", "--memory", "1GB"], "memory is given by --memory, too"),
        (
            ["--budget", "devices=2,memory=1kB"],
            "no network has room for the model; most of it is with devices",
        ),
        pytest.param(
            ["--grow", "--memory", "1kB"],
            "no network has room for the model; with 1000 devices: device",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_what_cannot_be_is_said(amphw, more, complaint) -> None:
    done = amphw("estimate", *SMALL, *FLOPS, *more)
    assert done.exit_code == 1 and complaint in done.stderr


@pytest.mark.parametrize(
    "more",
    [
        ["--grow", "--target", "1/s"],
        ["--grow", "--budget", "devices=2"],
        ["--grow", "--devices", "2"],
        ["--grow", "--method", "sleep"],
        ["--target", "1/s", "--method", "sleep"],
        ["--target", "1/s", "--case", "paper"],
    ],
)
def test_options_that_do_not_go_together(amphw, more) -> None:
    assert amphw("estimate", *SMALL, *FLOPS, *more).exit_code == 2


def test_the_json_is_one_object(amphw) -> None:
    done = amphw("estimate", *SMALL, *FLOPS, "--budget", "devices=2", "--json")
    assert done.stdout.count("\n") == 1 and json.loads(done.stdout)["proposal"]["target"] is None
