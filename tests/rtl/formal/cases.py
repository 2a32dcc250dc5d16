"""Contracts, components that keep them, and faults that break them: a proof must be able to fail."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from tests.daily import daily
from tests.rtl.formal.prove import breaks, prove, reach


class Case(NamedTuple):
    """A contract of a component; `faults` are places of its source, and what breaks the contract there.

    contract: given the class. depth: cycles within which every fault breaks it, and all can be reached that
    it covers. constants: of its module, made small enough for a proof. covers: whether the contract says what
    can be reached. every_day: whether its proof is short enough for each run of the tests. bounded: whether
    the proof is up to the depth alone, since no invariants are found.
    """

    component: type
    contract: Callable[[Any], Any]
    depth: int
    faults: tuple[tuple[str, str], ...]
    constants: Mapping[str, Any] = {}
    covers: bool = True
    every_day: bool = True
    bounded: bool = False

    def proof(self, old: str = "", new: str = "") -> Any:
        """The contract around the component, or around the one with a fault."""
        return self.contract(variant(self.component, old, new, self.constants))


def variant(component: type, old: str, new: str, constants: Mapping[str, Any] = {}) -> Any:
    """The class with one place of its source changed, and other constants in its module."""
    if not old and not constants:
        return component
    source = inspect.getsource(component)
    assert not old or source.count(old) == 1, f"{old!r}: {source.count(old)} times in {component.__name__}"
    scope = {**vars(sys.modules[component.__module__]), **constants}
    exec(compile(source.replace(old, new), f"<{component.__name__} with {new}>", "exec"), scope)
    return scope[component.__name__]


def proofs_of(cases: Mapping[str, Case]) -> tuple[Any, Any, Any]:
    """Tests: that contracts are kept, that faults are found, that the assumptions can be met."""
    faults = [(name, *fault) for name, case in cases.items() for fault in case.faults]

    short = [name for name, case in cases.items() if case.every_day]

    @pytest.mark.parametrize("name", daily(short, [name for name in cases if name not in short]))
    def kept(name: str) -> None:
        case = cases[name]
        if case.bounded:
            assert breaks(case.proof(), case.depth) is None
        else:
            proof = prove(case.proof())
            assert proof.holds, f"cycle {proof.step}: {proof.failure}"

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("name", "old", "new"), faults, ids=[f"{name}: {new}" for name, _, new in faults]
    )
    def found(name: str, old: str, new: str) -> None:
        step = breaks(cases[name].proof(old, new), cases[name].depth)
        assert step is not None and step < cases[name].depth

    @pytest.mark.thorough
    @pytest.mark.parametrize("name", [name for name, case in cases.items() if case.covers])
    def reached(name: str) -> None:
        proof = reach(cases[name].proof(), cases[name].depth)
        assert proof.holds, proof.failure

    return kept, found, reached
