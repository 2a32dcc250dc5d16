"""Records that break a rule are refused, with the firing's slot, generation and node."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from amphw.engine.numbering import FrameKind
from amphw.rtl.isa.events import What, pack, unpack
from amphw.rtl.isa.retirement import Retired, Retirement, RetirementError

FORWARD, BACKWARD, INFER = FrameKind.FORWARD, FrameKind.BACKWARD, FrameKind.INFER
CELL, HEAD = 0, 1


def device(words: Callable[[int, FrameKind, int, int], int] | None = None, trains: bool = True) -> Retirement:
    """Slot 2 has an instance of generation 7, whose firings are 10 .. 12 of 'cell' and 13 of 'head'."""
    found = Retirement(["cell", "head"], words)
    found.begins(2, 7, trains, {CELL: range(10, 13), HEAD: range(13, 14)})
    return found


def begin(on: Retirement, kind: FrameKind, unit: int, firing: int, slot: int = 2) -> None:
    event = pack(What.BEGIN, kind=kind, unit=unit, slot=slot, firing=firing)
    assert on.note(unpack(event)) is None


def end(on: Retirement, kind: FrameKind, unit: int, firing: int, slot: int = 2) -> Retired:
    retired = on.note(unpack(pack(What.END, kind=kind, unit=unit, slot=slot, firing=firing)))
    assert retired is not None
    return retired


def run(on: Retirement, kind: FrameKind, unit: int, firing: int, words: int = 0) -> Retired:
    begin(on, kind, unit, firing)
    for k in range(words):
        assert on.note(unpack(pack(What.WRITE, firing=k, data=k))) is None
    return end(on, kind, unit, firing)


def update(on: Retirement, unit: int) -> None:
    assert on.note(unpack(pack(What.UPDATE, unit=unit))) is None


def refused(what: str) -> pytest.RaisesExc[RetirementError]:
    return pytest.raises(RetirementError, match=f"^slot 2, generation 7, node '{what}")


def test_a_firing_retires_with_its_version_and_words() -> None:
    on = device(lambda slot, kind, unit, firing: {FORWARD: 3, BACKWARD: 2}[kind])
    update(on, CELL)
    assert run(on, FORWARD, CELL, 11, words=3) == Retired(2, 7, "cell", 1, FORWARD, 1, 3)
    update(on, CELL)
    update(on, HEAD)
    assert run(on, BACKWARD, CELL, 11, words=2) == Retired(2, 7, "cell", 1, BACKWARD, 2, 2)
    on.rests()
    on.told(CELL, 2)
    on.ends(2)
    on.begins(2, 8, False, {CELL: range(3, 4)})
    on = device(trains=False)
    assert run(on, INFER, HEAD, 13) == Retired(2, 7, "head", 0, INFER, 0, None)


def test_no_firing_runs_twice_for_a_generation() -> None:
    on = device()
    run(on, FORWARD, CELL, 10)
    with refused("cell', firing 0, forward: ran before in this generation"):
        begin(on, FORWARD, CELL, 10)
    on = device()
    run(on, FORWARD, CELL, 10)
    run(on, BACKWARD, CELL, 10)
    with refused("cell', firing 0, backward: ran before"):
        begin(on, BACKWARD, CELL, 10)
    on.ends(2)
    on.begins(2, 8, True, {CELL: range(10, 13)})
    assert run(on, FORWARD, CELL, 10).generation == 8


def test_no_firing_is_lost() -> None:
    on = device()
    run(on, FORWARD, CELL, 12)
    with refused("cell', firing 2, forward: ran forward, and its instance ended before it ran backward"):
        on.ends(2)
    on = device()
    begin(on, FORWARD, CELL, 12)
    with refused("cell', firing 2, forward: its instance ended while it runs"):
        on.ends(2)


def test_what_began_has_ended_when_the_circuit_rests() -> None:
    on = device()
    begin(on, FORWARD, HEAD, 13)
    with refused("head', firing 0, forward: the circuit says that it rests"):
        on.rests()


def test_one_firing_after_the_other() -> None:
    on = device()
    begin(on, FORWARD, CELL, 10)
    with refused("head', firing 0, forward: began before another one ended .*node 'cell', firing 0"):
        begin(on, FORWARD, HEAD, 13)
    on = device()
    begin(on, FORWARD, CELL, 10)
    with refused("cell', firing 0, forward: what ended is node 'cell', slot 2, number 11, forward"):
        end(on, FORWARD, CELL, 11)
    on = device()
    with refused("cell', number 10: ended, and has not begun"):
        end(on, FORWARD, CELL, 10)


def test_only_firings_of_an_instance_run() -> None:
    with refused(r"head', firing 1, forward: the instance has 1 firing\(s\)"):
        begin(device(), FORWARD, HEAD, 14)
    with refused("cell', firing 0, infer: ran in an instance that trains"):
        begin(device(), INFER, CELL, 10)
    with refused("cell', firing 0, forward: ran in an instance that is only inferred"):
        begin(device(trains=False), FORWARD, CELL, 10)
    with pytest.raises(RetirementError, match="slot 3, generation none, it is free, node 'cell', number 10"):
        begin(device(), FORWARD, CELL, 10, slot=3)


def test_backward_comes_after_forward_and_not_with_an_older_version() -> None:
    with refused("cell', firing 0, backward: has not run forward"):
        begin(device(), BACKWARD, CELL, 10)
    on = device()
    on.versions[CELL] = 5
    run(on, FORWARD, CELL, 10)
    on.versions[CELL] = 4
    with refused("cell', firing 0, backward: its version is 4, and it ran forward with 5"):
        run(on, BACKWARD, CELL, 10)


def test_a_version_is_what_the_updates_make_it() -> None:
    on = device()
    on.loads(CELL, 3)
    update(on, CELL)
    on.told(CELL, 4)
    with pytest.raises(RetirementError, match="node 'cell': its version is 3, but its updates make it 4"):
        on.told(CELL, 3)
    on = device()
    begin(on, FORWARD, CELL, 10)
    with refused("cell', firing 0, forward: node 'head' was updated while it runs"):
        update(on, HEAD)
    on = device()
    on.versions[CELL] = 1
    begin(on, FORWARD, CELL, 10)
    on.versions[CELL] = 0
    with refused("cell', firing 0, forward: the node's version went back from 1 to 0"):
        end(on, FORWARD, CELL, 10)


def test_versions_that_the_host_writes_begin_anew() -> None:
    on = device()
    on.loads(CELL, 9)
    run(on, FORWARD, CELL, 10)
    on.loads(CELL, 0)
    assert run(on, BACKWARD, CELL, 10).version == 0


def test_words_are_as_many_as_the_plan_says() -> None:
    on = device(lambda slot, kind, unit, firing: 2 + firing)
    assert run(on, FORWARD, CELL, 11, words=3).words == 3
    with refused(r"cell', firing 2, forward: 3 word\(s\) were written, by the plan it is 4"):
        run(on, FORWARD, CELL, 12, words=3)
