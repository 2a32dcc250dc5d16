"""Kernels as one: what depends on each other stays in order, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.merge import merged
from amphw.opencl.codegen.update import once_kernel
from tests.opencl.kernels import Machine

FORM = Form(vector=4)


def adds(name: str, target: str, sources: list[str], items: tuple[int, ...]):
    """target[i] += i + 1 + the sources' sum, for as many i as there are items in two dimensions."""
    across = items[0]
    index = f"get_global_id(1) + {across} * get_global_id(2)" if len(items) == 2 else "get_global_id(1)"
    total = " + ".join(["i + 1", *(f"{s}[i]" for s in sources)])
    body = [f"const int i = {index};", f"{target}[i] += {total};"]
    return once_kernel(name, [target, *sources], [target], FORM, items, body, name)


def notes(name: str, parameter: int):
    body = [f"if (g0[get_global_id(1)] > 6.0f) faults[BAD_GRADIENT + {parameter}] = 1;"]
    return once_kernel(name, ["g0"], [], FORM, (8,), body, name)


def stops(name: str):
    body = ["if (faults[BAD_GRADIENT]) return;", "p0[get_global_id(1)] = -1.0f;"]
    return once_kernel(name, ["p0"], ["p0"], FORM, (8,), body, name)


def test_what_depends_on_each_other_stays_in_order(machine: Machine) -> None:
    kernels = [
        adds("first", "g0", [], (4, 2)),
        adds("second", "g1", [], (8,)),
        adds("third", "p0", ["g0", "g1"], (2, 4)),
        adds("fourth", "g0", ["p0"], (8,)),
    ]
    found = merged("all", kernels)
    assert [k.items for k in found] == [(16,), (8,), (8,)]
    arrays = {name: np.zeros(8, np.float32) for name in ("g0", "g1", "p0")}
    expected = {name: a.copy() for name, a in arrays.items()}
    for run, results in ((kernels, expected), (found, arrays)):
        program = machine.build(FORM, run)
        for kernel in run:
            machine.run(program, kernel, np.zeros(64, np.float32), 0, results, np.zeros(8, np.int32), ())
    for name, value in expected.items():
        np.testing.assert_array_equal(arrays[name], value)
    assert expected["p0"].tolist() == [3.0 * n for n in range(1, 9)]


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (("g0", ["g1"]), ("g1", []), False),  # writes what was only read: not before that
        (("g1", []), ("g0", ["g1"]), False),
        (("g0", []), ("g0", []), False),
        (("g0", ["p0"]), ("g1", ["p0"]), True),
    ],
    ids=["write after read", "read after write", "write after write", "read after read"],
)
def test_only_kernels_that_do_not_need_one_another_run_at_once(
    first: tuple[str, list[str]], second: tuple[str, list[str]], together: bool
) -> None:
    found = merged("all", [adds("a", *first, (8,)), adds("b", *second, (8,))])
    assert [k.items for k in found] == ([(16,)] if together else [(8,), (8,)])


def test_kernels_that_note_faults_run_together_before_those_that_read_them() -> None:
    found = merged("all", [notes("a", 0), notes("b", 1), stops("c")])
    assert [k.items for k in found] == [(16,), (8,)]


def test_work_groups_that_share_rows_stay_by_themselves() -> None:
    shared = once_kernel("a", ["g0"], ["g0"], Form(vector=1, lanes=8), (2,), ["g0[0] = 1.0f;"], "a")
    assert merged("all", [shared, shared]) == [shared, shared]


@pytest.mark.parametrize("count", [0, 1])
def test_few_kernels(count: int) -> None:
    assert len(merged("all", [notes("a", 0)] * count)) == count
