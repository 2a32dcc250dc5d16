"""Who may reach a job: the token that Ray asks for, and where it comes from."""

from __future__ import annotations

import os

import pytest

from amphw.replicas.elastic.settings import authenticate, split, token


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
