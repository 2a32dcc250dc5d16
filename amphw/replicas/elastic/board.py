"""A coordinator as members reach it, and what it may answer instead of taking a member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from amphw.ir.errors import AmphwError
from amphw.replicas.ako.message import Member


class Coordinating(Protocol):
    """A coordinator as members reach it (`Coordinator`); calls are repeated until it answers."""

    def register(
        self, number: int | None, identity: Mapping[str, str], address: str, about: Mapping[str, Any]
    ) -> dict[str, Any]: ...
    def look(self, member: Member | None = None) -> dict[str, Any]: ...
    def next(
        self,
        member: Member,
        done: tuple[int, int] | None,
        known: tuple[int, int],
        unit: int,
        figures: Mapping[str, Any],
    ) -> dict[str, Any]: ...
    def lost(self, member: Member, why: str) -> None: ...
    def ready(self, member: Member) -> bool: ...
    def gave(self, joiner: Member, path: str, round: int) -> None: ...
    def validated(self, member: Member, epoch: int, record: Mapping[str, Any]) -> dict[str, Any]: ...
    def progress(self) -> dict[str, Any]: ...
    def saves(self, member: Member) -> bool | None: ...
    def saved(self, member: Member, path: str, state: Mapping[str, Any]) -> None: ...
    def left(self, member: Member, why: str, figures: Mapping[str, Any], told: list[Member]) -> None: ...


class RefusedError(AmphwError):
    """The job does not take this member; the message says why."""


class OverError(RefusedError):
    """There is no job to take part in any more."""
