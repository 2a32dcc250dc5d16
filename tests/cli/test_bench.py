"""`amphw bench`: what it prints and writes, with a peer that only keeps the protocol."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from amphw.bench.record import KEYS
from amphw.cpu_runtime.planes import built

FAKE = Path(__file__).resolve().parents[1] / "bench" / "fake_peer.py"
TINY = ["hidden=4", "batch=20", "train_instances=400", "valid_instances=100", "epochs=1", "target=0.05"]
BRIEF = ["--seconds", "0.05", "--rounds", "1", "--every", "20", "--no-inference"]


@pytest.fixture
def small() -> list[str]:
    return ["list-reduction", *BRIEF, *(word for setting in TINY for word in ("--set", setting))]


@pytest.fixture
def peer(tmp_path, monkeypatch) -> list[str]:
    """Options that name an interpreter with the fake torch."""

    def use(**how: object) -> list[str]:
        program = tmp_path / "fake-python"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
        program.chmod(0o755)
        monkeypatch.setenv("FAKE_PEER", json.dumps(how))
        return ["--peers", "torch", "--peer-python", str(program)]

    return use


def test_json_is_the_contract_and_the_table_is_for_people(amphw, small, peer, tmp_path) -> None:
    done = amphw("bench", *small, *peer(), "--forms", "folded", "--json", "--out", "results")
    assert done.exit_code == 0, done.stderr
    (line,) = done.stdout.splitlines()
    record = json.loads(line)
    assert set(KEYS) <= record.keys()
    assert record["workload"] == "list-reduction" and record["ours"] > 0
    assert all(p.keys() >= {"name", "threads", "processes", "instances_per_s"} for p in record["peers"])
    assert record["valid"] is False  # one round makes no median
    assert "torch, 1 thread: folded, batches of 20" in done.stderr
    assert "times the best single process" in done.stderr
    (written,) = (tmp_path / "results").glob("list-reduction-*.json")
    assert json.loads(written.read_text())["ours"] == record["ours"]


def test_a_record_that_cannot_be_written_is_said_before_measuring(amphw, tmp_path) -> None:
    (tmp_path / "file").touch()
    for out, where in (("file/results", "file/results"), ("file/x.json", "file"), ("file", "file")):
        done = amphw("bench", "frame-overhead", "--seconds", "0.02", "--out", out)
        assert done.exit_code == 1 and done.stdout == ""
        assert done.stderr.startswith(f"amphw: cannot write into {where}: "), done.stderr
        assert done.stderr.endswith("choose another place.\n") and "\n" not in done.stderr[:-1]


def test_a_record_that_cannot_be_written_in_the_end_is_printed_before(amphw, tmp_path, monkeypatch) -> None:
    from amphw.bench import save

    monkeypatch.setattr(save, "prepare", lambda out: None)
    (tmp_path / "file").touch()
    done = amphw(
        "bench", "frame-overhead", "--seconds", "0.02", "--rounds", "1", "--json", "--out", "file/x.json"
    )
    assert done.exit_code == 1
    assert json.loads(done.stdout)["us_per_message"] > 0
    assert "amphw: cannot write file/x.json: " in done.stderr


@pytest.mark.thorough
def test_without_the_peer_the_run_goes_on_with_ours_alone(amphw, small, peer) -> None:
    done = amphw("bench", *small, *peer(absent={"torch": "ModuleNotFoundError: No module named 'torch'"}))
    assert done.exit_code == 0, done.stderr
    assert "torch is not there: ModuleNotFoundError: No module named 'torch'" in done.stderr
    assert "pip install 'amphw[bench]', or name an interpreter that has it with --peer-python" in done.stderr
    assert "amphw, " in done.stdout and "no peer was measured" in done.stdout


@pytest.mark.thorough
def test_an_interpreter_that_does_not_exist_is_said_and_left_out(amphw, small, monkeypatch) -> None:
    monkeypatch.setenv("AMPHW_PEER_PYTHON", "/does/not/exist")
    done = amphw("bench", *small)
    assert done.exit_code == 0, done.stderr
    assert "the peers' interpreter '/does/not/exist' cannot be run" in done.stderr


def test_frame_overhead(amphw) -> None:
    done = amphw("bench", "frame-overhead", "--seconds", "0.02", "--rounds", "1", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["us_per_message"] > 0
    assert "us a message at a frame each" in done.stderr


@pytest.mark.thorough
@pytest.mark.skipif(not built(), reason="needs the C++ data plane")
def test_replicas(amphw, monkeypatch) -> None:
    from amphw.bench.replicas import byte_counts, equivalence, pair

    monkeypatch.setattr(equivalence, "MODELS", {"list-reduction": equivalence.MODELS["list-reduction"]})
    monkeypatch.setattr(equivalence, "UPDATES", 3)
    monkeypatch.setattr(byte_counts, "RANKS", (2,))
    monkeypatch.setattr(pair, "PAIRS", (pair.Pair("list-reduction", 4, 20_000),))
    monkeypatch.setattr(pair, "WAIT_S", 0.3)
    done = amphw("bench", "replicas", "--seconds", "0.05", "--rounds", "1", "--json")
    assert done.exit_code == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["equivalence"].keys() == {"hybrid", "allreduce", "servers"}
    assert max(record["equivalence"].values()) < 1e-5 and max(record["equivalence_float64"].values()) < 1e-10
    assert record["bytes_exact"] is True and record["two_ranks"]["list-reduction"] > 0
    waits = record["waiting_cores"]
    assert waits is None if record["carrier"] == "threads" else 0 < waits < 0.5
    assert record["valid"] is False and "there were 1 rounds" in record["invalid_because"][-1]
    assert "bytes are those of the formulas" in done.stderr


@pytest.mark.thorough
@pytest.mark.skipif(not built(), reason="needs the C++ data plane")
def test_exchange(amphw, monkeypatch) -> None:
    from amphw.bench.replicas import exchange

    monkeypatch.setattr(exchange, "FIXED", 1)
    monkeypatch.setattr(exchange, "CARRIED_S", 0.05)
    quick = ["--seconds", "0.01", "--rounds", "1", "--set", "sample=true", "--set", "hidden=8"]
    tried = ["--partitions", "1,3", "--link", "1Mb/s"]
    done = amphw("bench", "exchange", *quick, *tried, "--json")
    assert done.exit_code == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["compute_share"] > 0 and record["bandwidth_error"] > -1
    assert record["bandwidth"] == 100_000  # four fifths of the link
    gamma, size = record["gamma"][0], record["gradient_bytes"]
    assert gamma >= record["rounds_per_s"][0]
    assert record["p_predicted"] == max(1, math.ceil(gamma * size / 100_000))
    assert record["sweep"].keys() == {"1", "3"}
    assert record["p_best"] is None
    assert "one run with each number of partitions" in record["because"]["p_best"]
    assert record["valid"] is False
    assert "the best is not told" in done.stderr


def test_scaling(amphw, small) -> None:
    done = amphw("bench", *small, "--scaling", "--pumped", "1200", "--device", "null")
    assert done.exit_code == 0, done.stderr
    assert "least and greatest rate differ by" in done.stdout


@pytest.mark.thorough
@pytest.mark.skipif(not built(), reason="needs the C++ data plane")
def test_workers(amphw, small) -> None:
    done = amphw("bench", *small, "--workers", "1,64", "--json")
    assert done.exit_code == 0, done.stderr
    found = {r["workers"]: r for r in json.loads(done.stdout)["workers"]}
    assert found[64]["simulated"] and found[64]["speed_up"] > 0
    assert not found[1]["simulated"] and found[1]["simulation"]["error"] is not None
    assert "what is said of more workers is simulated" in done.stderr


def test_to_accuracy(amphw, small, peer) -> None:
    done = amphw("bench", *small, *peer(), "--forms", "folded", "--to-accuracy", "--json")
    assert done.exit_code == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["target"] == 0.05 and record["peers"][0]["seconds"] == 2.0
    assert "amphw: epoch 1" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["tree-lstn"], 1, "there is no workload 'tree-lstn'."),
        (["mlp", "--peers", "numpy"], 1, "there is no peer 'numpy'. Peers: torch, pyg, dynet, jax."),
        (["mlp", "--forms", "conv"], 1, "mlp has no form 'conv'. Forms: layers, layers+compiled, layers+gr"),
        (["list-reduction", "--set", "hiden=3"], 1, "no section has a key hiden"),
        (["list-reduction", "--device", "gpu"], 1, "there is no device 'gpu'"),
        (["list-reduction", "--every", "ten"], 2, "expected numbers of 1 or more with commas, got 'ten'"),
        (["list-reduction", "--every", "100,200,100"], 1, "--every has 100 twice; give each interval once."),
        (
            ["list-reduction", "--every", "200,25"],
            1,
            "--every 25 is no multiple of 100, the sequences that an instance of list-reduction holds; "
            "give one, such as 100.",
        ),
        (
            ["list-reduction", "--set", "batch=64"],
            1,
            "--every 100 is no multiple of 64, the sequences that an instance of list-reduction holds; "
            "give one, such as 128.",
        ),
        (["list-reduction", "--scaling", "--check"], 2, "only one of --to-accuracy, --scaling, --check"),
        (["frame-overhead", "--check"], 2, "frame-overhead is a measurement of its own, without --check"),
        (["frame-overhead", "--workers", "1"], 2, "a measurement of its own, without --workers"),
        (["replicas", "--scaling"], 2, "replicas is a measurement of its own, without --scaling"),
        (["opencl", "--check"], 2, "opencl is a measurement of its own, without --check"),
        (["list-reduction", "--workers", "0"], 2, "expected numbers of 1 or more with commas, got '0'"),
    ],
)
def test_each_mistake_is_one_message(amphw, arguments, code, message) -> None:
    done = amphw("bench", *arguments, "--seconds", "0.05", "--rounds", "1")
    assert done.exit_code == code
    assert message in " ".join(done.stderr.replace("│", " ").split()), done.stderr
    assert done.stdout == ""


def test_without_the_peers_code_the_run_goes_on_with_ours_alone(amphw, small, peer, monkeypatch) -> None:
    """As where amphw is installed from a wheel, which has none of it."""
    monkeypatch.setenv("AMPHW_PEERS", "nowhere")
    done = amphw("bench", *small, *peer(), "--json")
    assert done.exit_code == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["ours"] > 0 and record["peers"] == []
    (remark,) = [r for r in record["remarks"] if "AMPHW_PEERS" in r]
    assert remark.startswith("AMPHW_PEERS is nowhere, where no peers are; ")
    assert remark.endswith("get amphw's source, and name its folder benchmarks/peers in AMPHW_PEERS")
