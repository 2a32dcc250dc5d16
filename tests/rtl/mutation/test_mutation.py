# amaranth: UnusedElaboratable=no
"""Faults in a small circuit: those that must be noticed are, and those that change nothing are proved to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.rtl.gateware.controller.memory import Store
from amphw.rtl.isa.events import What
from amphw.rtl.mutation import campaign as campaign_module
from amphw.rtl.mutation.campaign import campaign, shares, summary
from amphw.rtl.mutation.equivalence import Prover
from amphw.rtl.mutation.netlist import Mutant, flat, sample
from amphw.rtl.mutation.play import Said, Subject, Verdict
from amphw.rtl.mutation.replay import Recorded
from sim.mutants.device import firings_in_time
from sim.mutants.engines import same_cycles
from sim.setups import Setup
from tests.rtl.mutation.circuits import Absorbs, Forgets, Holds, Waits, fault, subject


def test_the_choice_is_the_seeds() -> None:
    netlist = flat(Absorbs())
    chosen = sample(netlist, 20, 1)
    assert len({mutant.name for mutant in chosen}) == 20
    assert sample(flat(Absorbs()), 20, 1) == chosen
    assert {mutant.name for mutant in sample(netlist, 20, 2)} != {mutant.name for mutant in chosen}
    assert not any(mutant.port == "CLK" for mutant in chosen)


def test_what_changes_nothing_is_proved() -> None:
    netlist = flat(Absorbs())
    equivalent = Prover(netlist).equivalent
    for mode in ("const0", "const1", "inv"):
        assert equivalent(fault(netlist, "$and", mode, "B", 5)), mode
    assert not equivalent(fault(netlist, "$and", "const1", "Y", 5))
    assert not equivalent(fault(netlist, "$add", "inv", "Y", 15))


def test_what_nobody_sees_is_proved() -> None:
    """Bits that only go round in a register, and a payload that is not offered."""
    netlist = flat(Forgets())
    equivalent = Prover(netlist).equivalent
    assert equivalent(fault(netlist, "$dff", "inv", "Q", 12))
    assert not equivalent(fault(netlist, "$dff", "inv", "Q", 7))
    assert equivalent(fault(netlist, "$mux", "inv", "A", 3))
    assert not equivalent(fault(netlist, "$mux", "inv", "B", 3))


def test_what_is_loaded_again_before_anybody_looks_is_proved() -> None:
    """A register that differs in some states of the circuit, and not in the one in which it is seen."""
    netlist = flat(Waits())
    word = netlist.module["ports"]["x"]["bits"]
    cells = netlist.module["cells"]
    [cell] = (name for name, of in cells.items() if of["type"] == "$mux" and of["connections"]["A"] == word)
    equivalent = Prover(netlist).equivalent
    for mode in ("const0", "const1", "inv"):
        waits, loads = (Mutant(mode, cell, port, 3, -1, "", "", "$mux") for port in "AB")
        assert equivalent(waits) and not equivalent(loads)


@pytest.mark.parametrize("after", [1, 2, 3])
def test_what_is_inverted_an_even_number_of_times_is_proved(after: int) -> None:
    """A register that is held for a while, and that a fault inverts, always or where another bit says so."""
    netlist = flat(Holds(after))
    equivalent = Prover(netlist).equivalent
    kept = fault(netlist, "$dff", "inv", "Q", 5)
    assert len(netlist.module["cells"][kept.cell]["connections"]["Q"]) == 8
    assert equivalent(kept) == (after == 2)
    for mode in ("cnot0", "cnot1"):
        assert equivalent(replace(kept, mode=mode, other=3)) == (after == 2)
    assert not equivalent(replace(kept, mode="const0"))


def test_in_the_beginning_nothing_has_been_inverted() -> None:
    netlist = flat(Holds(2, begins=True))
    assert not Prover(netlist).equivalent(fault(netlist, "$dff", "inv", "Q", 5))


def test_a_memory_in_another_order_is_proved() -> None:
    """An address that all ports share may have a bit inverted, always or by another one, but not lost."""
    netlist = flat(Store(8, 64))
    equivalent = Prover(netlist).equivalent
    for mutant in sample(netlist, 200, 1):
        of_address = "addr" in mutant.wire and mutant.mode in ("inv", "cnot0", "cnot1")
        assert equivalent(mutant) == of_address, mutant.name


@pytest.mark.thorough
def test_what_changes_something_is_noticed() -> None:
    opened = subject().open()
    netlist = opened.netlist
    faults = [
        fault(netlist, "$add", "inv", "Y", 15),
        fault(netlist, "$and", "const0", "B", 5),
        fault(netlist, "$or", "const1", "Y", 0),
    ]
    player = opened.with_mutants(faults)
    assert [player.outcome(number).how for number in (1, 2, 3)] == ["WORD", "", "WORD"]
    assert player.outcome(1).by == "words"
    reference, _ = player.wanted(opened.scripts[0])
    assert len(reference.words) == 200 and reference.verdict is Verdict.SAME


@pytest.mark.thorough
def test_a_campaign_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPHW_CACHE", str(tmp_path))
    said: list[str] = []
    subjects = [subject(), subject("little said", 1)]
    first = campaign(subjects, 40, 1, 1e9, said.append)
    assert first["complete"] and first["sampled"] == 40
    assert first["killed"] + first["survived"] + first["equivalent"] == 40
    assert first["subjects"]["absorbs"]["survived"] == 0  # each that the words miss is proved to be none
    assert first["survived"] == len(first["survivors"]) == first["subjects"]["little said"]["survived"] > 0
    assert sum(first["by"].values()) == first["killed"] > 10
    assert said

    def judged_again(*_: Any) -> None:
        raise AssertionError("a fault was tried again")

    monkeypatch.setattr(campaign_module, "Prover", judged_again)
    monkeypatch.setattr("amphw.rtl.mutation.play.with_mutants", judged_again)
    second = campaign(subjects, 40, 1, 1e9, said.append)
    assert {k: v for k, v in second.items() if k != "seconds"} == {
        k: v for k, v in first.items() if k != "seconds"
    }
    # Without time, those alone that are known.
    assert campaign(subjects, 40, 1, 0.0, said.append)["complete"]
    stopped = campaign(subjects, 40, 2, 0.0, said.append)
    assert not stopped["complete"] and stopped["sampled"] < 40


@pytest.mark.thorough
def test_a_run_of_a_bench_is_replayed() -> None:
    from amphw.rtl.gateware.streams import SkidBuffer

    setup = Setup("skid-buffer", lambda: SkidBuffer(8), "through_bench", {"bits": 8, "capacity": 2})
    opened = Recorded("skid buffer", setup.make, setup.record).open()
    assert opened.changes.looks > 1000
    chosen = sample(opened.netlist, 30, 1)
    replayer = opened.with_mutants(chosen)
    noticed = [replayer.outcome(number) for number in range(1, 31)]
    killed = [outcome for outcome in noticed if outcome.how]
    assert 27 <= len(killed) < 30
    # What the spare register holds while it is not in use may be anything.
    prover = Prover(opened.netlist)
    proved = [prover.equivalent(mutant) for mutant in chosen]
    assert proved == [not outcome.how for outcome in noticed]
    assert all(outcome.how == "OUTPUT" and " at edge " in outcome.why for outcome in killed)


def test_what_may_take_other_cycles() -> None:
    """An engine none; a firing one more or fewer, if that evens out."""

    def said(*at: int) -> Said:
        whats = np.array([What.BEGIN, What.END] * (len(at) // 2), np.uint64)
        return Said(Verdict.SAME, np.zeros(0, np.uint16), whats, np.array(at, np.int64), at[-1], 0)

    wanted = said(0, 10, 20, 30, 40, 50)
    assert not firings_in_time(wanted, wanted) and not same_cycles(wanted, wanted)
    assert not firings_in_time(wanted, said(0, 11, 20, 29, 45, 55))
    assert same_cycles(wanted, said(0, 11, 20, 29, 45, 55)) == "record 1 in cycle 11, not 10"
    assert firings_in_time(wanted, said(0, 12, 20, 29, 40, 49)) == "a firing takes 2 cycles more or fewer"
    assert firings_in_time(wanted, said(0, 11, 20, 30, 40, 50)) == "firings take 0.33 cycles more"


def test_counts_and_shares() -> None:
    subjects = [Subject(str(k), Absorbs, list, share=share) for k, share in enumerate((1, 2, 4))]
    assert shares(subjects, 10) == [1, 3, 6]
    nothing = summary([])
    assert nothing["score"] is None and not nothing["meets_bar"]
    mutant = {"file": "x.py", "module": "x", "kind": "$and", "wire": "", "sources": []}
    found = [
        {
            "name": name,
            "subject": "s",
            "mutant": mutant,
            "outcome": {"how": how, "slower": False},
            "equivalent": same,
        }
        for name, how, same in (("a", "WORD", False), ("b", "", True), ("c", "", False))
    ]
    counted = summary(found)
    assert (counted["killed"], counted["survived"], counted["equivalent"]) == (1, 1, 1)
    assert counted["score"] == 0.5 and counted["modules"]["x.py"]["survived"] == 1
    assert [each["fault"] for each in counted["survivors"]] == ["c"]
    json.dumps(counted)
