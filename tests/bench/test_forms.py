"""Every peer's form computes what the reference device computes. Needs the peers: AMPHW_PEER_PYTHON names an
interpreter that has them, or this one does. Compiled forms take minutes: `amphw bench WORKLOAD --check`."""

from __future__ import annotations

import importlib.util
import os
import sys

import numpy as np
import pytest

from amphw.bench.agreement import check_agreement, furthest
from amphw.bench.forms import FLOAT32, FORMS
from amphw.bench.plan import Plan, peers_of
from amphw.bench.processor import multiplies_bfloat16
from amphw.bench.workloads import WORKLOADS, runnable

PYTHON = os.environ.get("AMPHW_PEER_PYTHON", sys.executable)
SMALL = {
    "mlp": ["sample=true", "width=16"],
    "list-reduction": ["hidden=8"],
    "tree-lstm": ["sample=true", "hidden=6", "embedding=5"],
    "ggnn": ["sample=true", "hidden=6", "steps=2"],
    "bilstm": ["sample=true", "embedding=6", "spelling=3", "letter=4", "hidden=4", "perceptron=3"],
    "language-model": ["vocabulary=300", "embedding=5", "hidden=4", "samples=7", "sentences=100"],
    "lm": ["vocabulary=300", "embedding=5", "hidden=4", "sentences=100"],
    "transformer": ["width=8", "heads=2", "inner=6", "sequences=100"],
}


@pytest.mark.skipif(
    "AMPHW_PEER_PYTHON" not in os.environ and importlib.util.find_spec("torch") is None,
    reason="needs PyTorch, here or in the interpreter that AMPHW_PEER_PYTHON names",
)
@pytest.mark.parametrize("workload", [name for name in SMALL if name in runnable()])
def test_loss_and_gradients_agree(workload: str) -> None:
    # Without instructions for bfloat16 PyTorch lacks some layers of it.
    there = [f for f in FORMS[workload] if f.precision == FLOAT32 or multiplies_bfloat16()]
    forms = [form.name for form in there if not form.compiled]
    plan = Plan(WORKLOADS[workload], SMALL[workload], (20,), peers_of(workload), PYTHON, forms)
    record = check_agreement(plan, lambda line: None)
    assert {row["form"] for row in record["forms"]} >= {f.name for f in FORMS[workload][:1]}
    assert [row for row in record["forms"] if not row["agrees"]] == []


def test_the_furthest_gradient_is_named() -> None:
    one = {"a/W": np.array([1.0, -4.0]), "a/b": np.array([2.0])}
    two = {"a/W": np.array([1.0, -4.4]), "a/b": np.array([2.5])}
    assert furthest(one, two) == ("a/b", 0.25)
    assert furthest(one, one)[1] == 0.0
    assert furthest(one, {"a/W": one["a/W"]}) == ("a/b", float("inf"))
    nothing = {"a/W": np.zeros(2)}
    assert furthest(nothing, nothing)[1] == 0.0 and furthest(nothing, {"a/W": np.ones(2)})[1] == 1.0


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([1.0, 2.0], [1.0, np.nan]),
        ([0.0, 0.0], [0.0, np.nan]),
        ([1.0, np.nan], [1.0, np.nan]),
        ([1.0, 1.0], [1.0, np.inf]),
        ([1.0, 1.0], [1.0]),
        ([[1.0, 1.0]], [1.0, 1.0]),
    ],
)
def test_what_cannot_be_compared_does_not_agree(ours, theirs) -> None:
    """Wherever it stands among the parameters."""
    right = {name: np.ones(2) for name in ("a/W", "z/W")}
    assert furthest(right | {"m/W": np.array(ours)}, right | {"m/W": np.array(theirs)}) == ("m/W", np.inf)


def test_every_workload_with_peers_has_a_form_that_counts() -> None:
    for name, forms in FORMS.items():
        assert any(form.kind == "batched" and form.peer == "torch" for form in forms), name
        assert len({form.name for form in forms}) == len(forms), name
