"""Who may reach a job: the token that Ray asks for, and where it comes from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amphw.host.checkpointing import CHECKPOINT
from amphw.ir.config_fields import ConfigError
from amphw.replicas.elastic.settings import authenticate, check_goes_on, split, token
from tests.replicas.elastic.test_coordinator import training, trains_all_of


@pytest.mark.parametrize(
    ("given", "address", "known"),
    [
        ({"RAY_AUTH_TOKEN": "mine"}, "", "mine"),
        ({"RAY_AUTH_TOKEN": "mine"}, "192.0.2.2:6379", "mine"),
        ({"RAY_AUTH_TOKEN": "mine"}, "theirs@192.0.2.2:6379", "theirs"),
        ({"RAY_ADDRESS": "theirs@192.0.2.2:6379"}, "", "theirs"),
        ({}, "192.0.2.2:6379", ""),
        ({"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "mine"}, "", ""),
        ({"RAY_AUTH_MODE": "disabled"}, "theirs@192.0.2.2:6379", "theirs"),
    ],
)
def test_a_token_that_is_known_is_asked_for(
    given: dict[str, str], address: str, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(given))
    authenticate(address)
    assert token() == known
    assert (os.environ.get("RAY_AUTH_MODE") == "token") == bool(known)


def test_a_job_that_begins_here_has_a_token_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for _ in range(2):
        monkeypatch.setattr(os, "environ", {})
        authenticate()
        found.append(token())
    assert all(len(each) == 32 for each in found) and found[0] != found[1]


def test_an_address_is_taken_apart() -> None:
    assert split("secret@host:1") == ("secret", "host:1") and split("host:1") == ("", "host:1")


def test_a_run_goes_on_from_what_its_journal_knows_alone(tmp_path: Path) -> None:
    check_goes_on(tmp_path)  # nothing was saved yet
    (tmp_path / CHECKPOINT).write_bytes(b"trained in one process")
    with pytest.raises(ConfigError, match="was not saved by a job with --carrier ray"):
        check_goes_on(tmp_path)
    board, (one, _) = training(tmp_path)
    trains_all_of(board, one, 1)
    path = tmp_path / "members" / "checkpoint-0-0-1.safetensors"
    path.write_bytes(b"saved by a member")
    board.saved(one, str(path.relative_to(tmp_path)), {**board.table.state(), "epochs": 1})
    check_goes_on(tmp_path)
    (tmp_path / CHECKPOINT).unlink()
    (tmp_path / CHECKPOINT).write_bytes(b"went on in one process")
    with pytest.raises(ConfigError, match="resume .* without --carrier ray"):
        check_goes_on(tmp_path)
