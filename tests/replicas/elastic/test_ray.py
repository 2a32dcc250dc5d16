"""Under Ray: a member that is killed comes back, one joins and leaves, and every instance counts once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from amphw.host.run_folder import RunFolder
from amphw.host.watching import ask, looked

pytest.importorskip("ray")
pytest.importorskip("zmq")

AMPHW = [sys.executable, "-m", "amphw.cli"]
SMALL = [
    *("hidden=32", "train_instances=20000", "valid_instances=200", "epochs=500", "target=none"),
    *("mode=pipeline", "workers=1", "replicas.strategy=ako"),
]


def told(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([*AMPHW, *arguments, "--json"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def until(true: Callable[[], Any], seconds: float = 120.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end
        time.sleep(0.3)
    return found


@pytest.mark.thorough
def test_members_die_return_join_and_leave(tmp_path: Path) -> None:
    run, said = tmp_path / "run", tmp_path / "said"
    settings = [part for each in SMALL for part in ("--set", each)]
    command = [*AMPHW, "train", "list-reduction", "--ranks", "2", "--carrier", "ray", "--out", str(run)]
    with open(said, "w") as errors:
        job = subprocess.Popen(
            [*command, *settings, "--json"], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        until(lambda: (run / "members" / "journal.jsonl").exists())
        until(lambda: len(told("ranks", str(run))["members"]) == 2)
        before = until(lambda: [m for m in told("ranks", str(run))["members"] if m["rounds"] > 0])
        watched = RunFolder.open(run)
        until(lambda: ask(run) or (looked(watched)["live"] or {}).get("done"))  # as `amphw watch` does
        os.kill(before[0]["pid"], signal.SIGKILL)
        known, address = re.findall(r"RAY_AUTH_TOKEN=(\w+) amphw join (\S+)", said.read_text())[0]
        stranger = subprocess.run(
            [*AMPHW, "join", address], env=os.environ | {"RAY_AUTH_TOKEN": "guessed"}, capture_output=True,
            text=True, timeout=120,
        )  # fmt: skip
        assert stranger.returncode == 1 and "that lets in this machine" in stranger.stderr, stranger.stderr
        joiner = subprocess.Popen(
            [*AMPHW, "join", address], env=os.environ | {"RAY_AUTH_TOKEN": known}, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip

        def states() -> list[tuple[int, int, str]]:
            assert joiner.poll() is None, joiner.communicate()
            return [(m["member"], m["incarnation"], m["state"]) for m in told("ranks", str(run))["members"]]

        until(lambda: {(before[0]["member"], 1, "training"), (2, 0, "training")} <= set(states()))
        joiner.send_signal(signal.SIGINT)
        _, left = joiner.communicate(timeout=120)
        assert joiner.returncode == 0 and "member 2 has left the job" in left, left
        assert "member 2 trains; Ctrl-C has it leave" in left and "leaving: the round is finished" in left, (
            left
        )
        job.send_signal(signal.SIGINT)
        out, _ = job.communicate(timeout=120)
    finally:
        job.kill()
    assert job.returncode == 130 and "stopped and saved; go on with: amphw" in said.read_text()
    summary = json.loads(out)
    found = {(m["member"], m["incarnation"]): m["state"] for m in summary["members"]}
    assert found[before[0]["member"], 0] == "lost" and found[2, 0] == "left"
    assert len(summary["clocks"]) == 3 and summary["staleness_rounds"]
    assert summary["staleness_max"] <= 3 + 3 + 1  # as many partitions as members, and as many rounds more
    assert "was lost: its process died" in said.read_text()
    audit = told("ledger", str(run))
    assert audit["lost"] == audit["doubled"] == 0 and audit["instances"] > 0


@pytest.mark.thorough
def test_an_address_that_is_no_job_is_told() -> None:
    for address, why in (
        ("127.0.0.1:1", "no job answers at"),
        ("hidden@somewhere", "'somewhere' is no address of a job"),
    ):
        done = subprocess.run([*AMPHW, "join", address], capture_output=True, text=True, timeout=120)
        assert done.returncode == 1 and why in done.stderr and "hidden" not in done.stderr, done.stderr


def children(of: int, called: str) -> list[int]:
    """Processes of this name below that one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = entry.read_text().partition("(")[2].rpartition(")")
            if int(rest.split()[1]) == of:
                pid = int(entry.parent.name)
                found += [pid] * (name == called) + children(pid, called)
    return found


@pytest.mark.thorough
def test_training_that_is_under_way_goes_on_without_rays_head(tmp_path: Path) -> None:
    """For longer than the minute after which Ray would end. Nobody can join then, or come back."""
    run, said = tmp_path / "run", tmp_path / "said"
    settings = [part for each in [*SMALL, "epochs=100000"] for part in ("--set", each)]
    command = [*AMPHW, "train", "list-reduction", "--ranks", "2", "--carrier", "ray", "--out", str(run)]

    def rounds() -> int:
        return sum(m["rounds"] for m in told("ranks", str(run))["members"])

    with open(said, "w") as errors:
        job = subprocess.Popen([*command, *settings], stderr=errors)
    try:
        until(lambda: (run / "members" / "journal.jsonl").exists())
        until(rounds)
        (head,) = children(job.pid, "gcs_server")
        os.kill(head, signal.SIGKILL)
        time.sleep(70.0)
        assert job.poll() is None, said.read_text()
        before = rounds()
        until(lambda: rounds() > before)
        job.send_signal(signal.SIGINT)
        assert job.wait(120) == 130, said.read_text()
    finally:
        job.kill()
    assert "stopped and saved" in said.read_text()
    audit = told("ledger", str(run))
    assert audit["lost"] == audit["doubled"] == 0 and audit["instances"] > 0
