"""A comparison from beginning to end, with peers that only keep the protocol."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from amphw.bench import calibrate as calibration
from amphw.bench import sides
from amphw.bench.accuracy import time_to_accuracy
from amphw.bench.errors import BenchError
from amphw.bench.forms import FLOAT32
from amphw.bench.frame_overhead import doubling_graph, measure_overhead
from amphw.bench.plan import Plan, write_inputs
from amphw.bench.scaling import marks, measure_scaling, rates, steadiness
from amphw.bench.sides import PeerInterpreter, Setup, setups
from amphw.bench.subject import SubjectError
from amphw.bench.throughput import compare
from amphw.bench.workloads import WORKLOADS, get_workload, runnable

TINY = ["hidden=4", "batch=20", "train_instances=400", "valid_instances=100", "epochs=2"]


@pytest.fixture(autouse=True)
def two_processors(monkeypatch) -> None:
    for module in (calibration, sides):
        monkeypatch.setattr(module, "processors", lambda: 2)


def plan(python: str, **changed: Any) -> Plan:
    asked: dict[str, Any] = {
        "workload": WORKLOADS["list-reduction"],
        "overrides": TINY,
        "every": (20,),
        "peers": ["torch"],
        "peer_python": python,
        "seconds": 0.05,
        "rounds": 2,
    }
    return Plan(**(asked | changed))


def test_the_strongest_forms_are_measured_and_all_are_told(fake_peer) -> None:
    python = fake_peer(rates={"rnn": 50.0, "folded": 200.0, "folded+compiled": 100.0})
    said: list[str] = []
    record = compare(plan(python), said.append)
    assert record["ours"] > 0 and record["sgemm_share"] > 0
    assert [(p["threads"], p["processes"], p["form"], p["instances_per_s"]) for p in record["peers"]] == [
        (1, 1, "folded", 200.0),
        (2, 1, "folded", 400.0),
        (1, 2, "folded", 400.0),
    ]
    counted = [c for c in record["calibration"] if c["precision"] == "float32"]
    tried = [(c["threads"], c["processes"], c["form"]) for c in counted]
    assert len(tried) == 3 + 3 + 2 and (1, 2, "rnn") not in tried  # several processes try the fastest two
    assert record["inference"]["ratio_best_single_process"] == pytest.approx(
        record["inference"]["ours"]["median"] / 400.0
    )
    assert record["our_side"]["intervals"]["head"] == 20
    assert record["our_side"]["intervals"]["cell"] == round(
        20 * record["our_side"]["rows_per_instance"]["cell"]
    )
    assert any(line.startswith("round 2 of 2: ") for line in said)


@pytest.mark.thorough
def test_a_peer_that_dies_on_the_way_is_left_out(fake_peer) -> None:
    """Two runs to calibrate by, one round; then the processes that run side by side are gone."""
    said: list[str] = []
    record = compare(plan(fake_peer(dies_after=2), rounds=3, inference=False), said.append)
    (label,) = record["lost"]
    assert label == "torch, 2 processes: rnn, every 20" and "ended with code 139" in record["lost"][label]
    assert len(record["peers"][2]["training"]["rounds"]) == 2
    assert len(record["peers"][0]["training"]["rounds"]) == 3
    assert f"{label} was lost on the way" in record["invalid_because"]
    assert any("the run goes on without it" in line for line in said)


@pytest.mark.thorough
def test_a_strongest_form_that_cannot_be_started_again_is_told(fake_peer) -> None:
    """It was the fastest of its setup: without it the ratios are to weaker peers."""
    python = fake_peer(rates={"rnn": 50.0, "folded": 200.0}, fails_first=["folded"])
    record = compare(plan(python, rounds=3, inference=False), lambda line: None)
    labels = ["torch, 1 thread: folded, every 20", "torch, 2 threads: folded, every 20"]
    assert list(record["lost"]) == labels
    assert record["lost"][labels[0]] == "torch, 1 thread: cannot build folded"
    assert record["valid"] is False
    for label in labels:
        assert f"{label}, the fastest when tried, could not be started again" in record["invalid_because"]


def test_an_error_of_one_process_leaves_the_others_in_step(fake_peer, tmp_path) -> None:
    python = fake_peer(rates={"rnn": 50.0, "folded": 200.0}, fails_beside=["folded"])
    spec = write_inputs(plan(python), tmp_path)
    with sides.peer_side(python, Setup("torch", 1, 2), spec, tmp_path) as side:
        with pytest.raises(SubjectError, match="^torch, 2 processes: cannot build folded$"):
            side.prepare("folded", 20)
        assert side.alive()
        side.prepare("rnn", 20)
        assert side.run(0.1)[0] == pytest.approx(100.0)


def test_a_dead_process_ends_those_beside_it(fake_peer, tmp_path) -> None:
    python = fake_peer(dies_after=0)
    spec = write_inputs(plan(python), tmp_path)
    with sides.peer_side(python, Setup("torch", 1, 2), spec, tmp_path) as side:
        side.prepare("rnn", 20)
        with pytest.raises(SubjectError, match="ended with code 139"):
            side.run(0.1)
        assert not any(each.alive() for each in side.subjects)


def test_forms_that_fail_are_noted(fake_peer, tmp_path) -> None:
    python = fake_peer(failing=["rnn", "folded"])
    asked = plan(python, inference=False)
    spec = write_inputs(asked, tmp_path)
    found = calibration.calibrate(asked, PeerInterpreter.probe(python), spec, tmp_path, lambda line: None)
    errors = {(c.setup.threads, c.form.name): c.error for c in found if c.error}
    assert errors[1, "rnn"] == "torch, 1 thread: cannot build rnn"
    assert {c.form.name for c in calibration.strongest(found, asked)} == {"folded+compiled"}


def test_a_peer_that_cannot_start_is_noted(fake_peer, tmp_path) -> None:
    python = fake_peer(broken=True)
    asked = plan(python)
    found = calibration.calibrate(
        asked, PeerInterpreter.probe(python), write_inputs(asked, tmp_path), tmp_path, lambda line: None
    )
    counted = [c for c in found if c.form.precision == FLOAT32]
    assert counted and all("ImportError: no torch" in (c.error or "") for c in counted)


def test_without_a_compiler_no_form_is_compiled(fake_peer, tmp_path) -> None:
    python = fake_peer(compiler=None)
    asked = plan(python)
    found = calibration.calibrate(
        asked, PeerInterpreter.probe(python), write_inputs(asked, tmp_path), tmp_path, lambda line: None
    )
    assert {c.form.name for c in found if c.form.precision == FLOAT32} == {"rnn", "folded"}
    assert not any(c.form.compiled for c in found)


def test_how_a_peer_may_use_the_processors() -> None:
    assert setups("torch", 1) == [Setup("torch", 1)]
    assert setups("torch", 4) == [Setup("torch", 1), Setup("torch", 4), Setup("torch", 1, 4)]
    assert setups("dynet", 2) == [Setup("dynet", 1), Setup("dynet", 1, 2)]


def test_one_key_is_compared_with_one_instance_at_a_time() -> None:
    """Where the workload has such a form; where an instance is a batch, batches stay what they are."""
    trees = plan("python", workload=WORKLOADS["tree-lstm"], overrides=(), keys=1)
    assert [f.name for f in trees.forms("torch")] == ["recursion"]
    assert "rnn" in [f.name for f in plan("python", keys=1).forms("torch")]
    usual = plan("python", workload=WORKLOADS["ggnn"], overrides=())
    assert "dense-nh" not in [f.name for f in usual.forms("torch")]
    assert {f.name for f in usual.others("torch")} == {
        *("graph", "dense-nh"),
        *("bundles+bf16", "bundles+compiled+bf16"),
    }


def test_settings_come_in_their_order() -> None:
    """The workload's, then the user's, then what the benchmark is about."""
    asked = plan("python", overrides=["frame_rows=7", "max_active_keys=3"])
    assert (asked.cfg.device.frame_rows, asked.cfg.train.max_active_keys) == (7, 3)
    assert plan("python", overrides=["max_active_keys=3"], keys=1).cfg.train.max_active_keys == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"peers": ["torch", "tensorflow"]}, "there is no peer 'tensorflow'. Peers: torch, pyg, dynet, jax."),
        (
            {"peer_forms": ["foldd"]},
            "list-reduction has no form 'foldd'. Forms: rnn, folded, folded+compiled, rnn+graph, "
            "folded+graph, rnn+bf16, folded+bf16, folded+compiled+bf16, scan, unrolled.",
        ),
    ],
)
def test_what_cannot_be_asked_for(changed, message) -> None:
    with pytest.raises(BenchError) as caught:
        plan("python", **changed)
    assert str(caught.value) == message


def test_a_workload_needs_its_model() -> None:
    with pytest.raises(BenchError, match="there is no workload 'trees'. .*Workloads: mlp, list-reduction"):
        get_workload("trees")
    missing = [name for name in WORKLOADS if name not in runnable()]
    for name in missing:
        with pytest.raises(BenchError, match=f"the workload '{name}' needs the model .*Workloads: mlp, "):
            get_workload(name)


def test_settings_of_the_workloads_are_settings() -> None:
    for name in runnable():
        assert plan("python", workload=WORKLOADS[name], overrides=(), every=WORKLOADS[name].every).cfg


def test_an_interpreter_that_is_none(tmp_path) -> None:
    with pytest.raises(BenchError, match="the peers' interpreter '/does/not/exist' cannot be run"):
        PeerInterpreter.probe("/does/not/exist")
    with pytest.raises(BenchError, match="does not say what it has"):
        PeerInterpreter.probe("/bin/echo")


def test_this_interpreter_says_what_it_has() -> None:
    found = PeerInterpreter.probe(sys.executable)
    assert found.versions.keys() | found.absent.keys() == {"torch", "pyg", "dynet", "jax"}


# --- other measurements -------------------------------------------------------------------------------


@pytest.mark.thorough
def test_time_to_an_accuracy(fake_peer) -> None:
    said: list[str] = []
    record = time_to_accuracy(plan(fake_peer(), peer_forms=["folded"]), 0.01, said.append)
    assert record["ours_run"]["reached"]["epoch"] == 1
    assert [run["label"] for run in record["peer_runs"]] == ["torch, 1 thread", "torch, 2 threads"]
    assert record["ratio_time"] == pytest.approx(2.0 / record["ours"])
    assert any(line.startswith("torch, 2 threads: epoch 2, 2.0 s, accuracy 0.8") for line in said)


@pytest.mark.thorough
def test_a_peer_that_dies_in_training_invalidates(fake_peer) -> None:
    said: list[str] = []
    record = time_to_accuracy(plan(fake_peer(untrained=2), peer_forms=["folded"]), 0.01, said.append)
    assert [run["label"] for run in record["peer_runs"]] == ["torch, 1 thread"]
    label = "torch, 2 threads: folded, every 20"
    assert "ended with code 139" in record["lost"][label]
    assert record["valid"] is False and f"{label} was lost on the way" in record["invalid_because"]


def test_an_accuracy_needs_a_target() -> None:
    with pytest.raises(BenchError, match="list-reduction has no target of its own; name one with --target"):
        time_to_accuracy(plan("python", overrides=["target=none"]), None, lambda line: None)


def test_scaling_is_the_rate_between_marks() -> None:
    assert marks(1_000_000) == [1000, 10_000, 100_000, 1_000_000]
    assert marks(3000) == [1000, 3000] and marks(500) == [500]
    found = [{"pumped": 10, "seconds": 1.0, "memory": 5.0}, {"pumped": 30, "seconds": 2.0, "memory": 5.0}]
    assert [row["instances_per_s"] for row in rates(found, 2.0)] == [20.0, 40.0]


def test_rates_may_differ_by_a_tenth() -> None:
    assert steadiness([95.0, 100.0, 91.0]) == {"spread": pytest.approx(0.09), "allowed": 0.1, "flat": True}
    assert steadiness([95.0, 100.0, 89.0])["flat"] is False


def test_scaling_is_measured() -> None:
    said: list[str] = []
    record = measure_scaling(plan("python", device="null"), 1500, said.append)
    assert [row["pumped"] for row in record["marks"]] == [1000, 1500]
    assert record.keys() >= {"spread", "allowed", "flat"}
    assert said[1].startswith("1,000 pumped after ")


def test_frame_overhead_counts_every_message() -> None:
    record = measure_overhead("cpu", 0.02, 1, lambda line: None, messages=8)
    assert [row["frame_cap"] for row in record["caps"]] == [1, 64]
    assert record["us_per_message"] > 0
    assert doubling_graph(8).parameterised == ["embed"]
