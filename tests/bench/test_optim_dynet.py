"""DyNet's trainers follow our update rules. Needs DyNet, in the interpreter that AMPHW_PEER_PYTHON names or
in this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from amphw.bench.errors import BenchError
from amphw.bench.plan import Plan, write_inputs
from amphw.bench.sides import PeerInterpreter, peers_folder
from amphw.bench.workloads import WORKLOADS
from amphw.ir.update import UpdateRule

PYTHON = os.environ.get("AMPHW_PEER_PYTHON", sys.executable)
STEPS = 3
NODES = ("embed", "leaf", "branch", "head")

# Trains a task by each of some rules, and writes parameters and gradients before each step; the gradients
# come from a task of its own, since those of a collection add up until it is updated.
PROGRAM = """
import json, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from peers.forms import FORMS
from peers.stored import StoredInstances, stored_parameters
from peers.trees_dynet import DynetTrees
spec = json.load(open(sys.argv[2]))
form = next(f for f in FORMS["tree-lstm"] if f.peer == "dynet")
stored, parameters = StoredInstances(spec["data"]), stored_parameters(spec["parameters"])
out = {}
for case, rules in spec["rules"].items():
    task = DynetTrees(form, stored, parameters, {})
    batch = task.collate(range(4))
    try:
        step = task.trainer(rules)
    except ValueError as error:
        out[f"{case}/refused"] = str(error)
        continue
    for number in range(spec["steps"] + 1):
        state = task.state()
        out |= {f"{case}/{number}/{n}": a for n, a in task.ours(state).items()}
        twin = DynetTrees(form, stored, parameters, {})
        twin.restore(state)
        out |= {f"{case}/{number}/gradient/{n}": g for n, g in twin.gradients(batch).items()}
        step(batch)
np.savez(spec["out"], **out)
"""

LARGE = (
    200.0  # with this rate of SGD, gradients pass the threshold that DyNet has of its own within a few steps
)
FOLLOWED = {
    "sgd": {"*": UpdateRule(lr=LARGE)},
    "momentum": {"*": UpdateRule(optimizer="momentum", lr=0.5, momentum=0.7)},
    "adagrad": {"*": UpdateRule(optimizer="adagrad", lr=0.05)},
    "adam": {"*": UpdateRule(optimizer="adam", lr=0.01, beta1=0.8, beta2=0.9, eps=1e-4)},
    "scheduled": {"*": UpdateRule(lr=1.0, schedule="step", schedule_steps=1, schedule_gamma=0.1, warmup=2)},
    "by-node": {
        "*": UpdateRule(lr=1.0),
        "embed": UpdateRule(optimizer="adagrad", lr=0.1),
        "branch": UpdateRule(optimizer="momentum", lr=0.2),
        "head": UpdateRule(optimizer="adam", lr=0.03, warmup=5),
    },
}
REFUSED = {
    "clip: it clips": UpdateRule(clip=1.0),
    "weight_decay: ": UpdateRule(weight_decay=0.1),
    "reduce = 'sum': ": UpdateRule(reduce="sum"),
    "momentum with a rate that varies: ": UpdateRule(optimizer="momentum", warmup=3),
}


def have_dynet() -> bool:
    try:
        return "dynet" in PeerInterpreter.probe(PYTHON).versions
    except BenchError:
        return False


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """What the program writes; one process for all rules, since starting it is what takes time."""
    if not have_dynet():
        pytest.skip("needs DyNet, here or in the interpreter that AMPHW_PEER_PYTHON names")
    folder = tmp_path_factory.mktemp("dynet")
    small = ["sample=true", "hidden=6", "embedding=5"]
    spec: dict[str, Any] = dict(write_inputs(Plan(WORKLOADS["tree-lstm"], small, (4,), [], PYTHON), folder))
    cases = FOLLOWED | {words: {"*": UpdateRule(), "leaf": rule} for words, rule in REFUSED.items()}
    spec["rules"] = {
        case: {node: asdict(rules.get(node, rules["*"])) for node in NODES} for case, rules in cases.items()
    }
    spec |= {"steps": STEPS, "out": str(folder / "out.npz")}
    (folder / "spec.json").write_text(json.dumps(spec))
    command = [PYTHON, "-c", PROGRAM, str(peers_folder().parent), str(folder / "spec.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(folder / "out.npz") as file:
        return dict(file)


@pytest.mark.parametrize("case", FOLLOWED)
def test_an_update_is_that_of_our_rule(trained: dict[str, np.ndarray], case: str) -> None:
    first, rules = f"{case}/0/gradient/", FOLLOWED[case]
    names = [name.removeprefix(first) for name in trained if name.startswith(first)]
    assert {name.split("/")[0] for name in names} == set(NODES)
    for name in names:
        rule = rules.get(name.split("/")[0], rules["*"])
        slots = [np.zeros_like(trained[f"{case}/0/{name}"]) for _ in range(rule.slots())]
        for step in range(STEPS):
            before, gradient = trained[f"{case}/{step}/{name}"], trained[f"{case}/{step}/gradient/{name}"]
            wanted = rule.step(before, gradient, slots, 1, rule.scalars(step, {}))
            assert np.abs(wanted - before).max() > 0
            # A rule that divides by the gradient's size makes much of rounding where that is small.
            sure = (gradient == 0) | (np.abs(gradient) > 1e-3)
            np.testing.assert_allclose(
                trained[f"{case}/{step + 1}/{name}"][sure], wanted[sure], rtol=1e-3, atol=1e-5, err_msg=name
            )


def test_the_threshold_that_dynet_has_of_its_own_is_passed(trained: dict[str, np.ndarray]) -> None:
    """Or the case without a `clip` would show nothing."""
    norms = [
        sum(float((g**2).sum()) for name, g in trained.items() if name.startswith(f"sgd/{step}/gradient/"))
        for step in range(STEPS)
    ]
    assert max(norms) > 25.0


@pytest.mark.parametrize("words", REFUSED)
def test_what_dynet_has_not_got_is_refused(trained: dict[str, np.ndarray], words: str) -> None:
    said = str(trained[f"{words}/refused"])
    assert said.startswith(f"DyNet cannot follow the update rule's {words}")
