"""Models that others wrote, unedited: loss and gradients are autograd's, and what is learnt goes back."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import amphw

torch = pytest.importorskip("torch")
NAMES = ("bert", "gpt2", "llama", "olmoe", "rwkv", "cells", "encoder", "gin", "gat", "gated", "exported")


@pytest.fixture(scope="module")
def cases() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of their imports
        pytest.importorskip("transformers")
        pytest.importorskip("torch_geometric")
        from benchmarks.others.cases import CASES
    assert set(NAMES) == set(CASES)
    return CASES


@pytest.mark.parametrize("name", NAMES)
def test_loss_and_gradients_are_those_of_autograd(name: str, cases: Any) -> None:
    from benchmarks.others.whole import differences

    made = cases[name].made()
    instances = made.case.data(3, 0)
    assert made.ours(instances) == pytest.approx(made.theirs(instances), rel=1e-6)
    found = differences(made.gradients(instances))
    assert found.keys() == {path for path, _ in made.module.named_parameters()}
    assert {path: d for path, d in found.items() if not d <= 1e-5} == {}


@pytest.mark.parametrize("name", NAMES)
def test_what_was_learnt_goes_back_into_their_model(name: str, cases: Any) -> None:
    made = cases[name].made()
    data = made.case.data(32, 1)
    settings = {"epochs": 4, "lr": 0.01, "valid": None, "progress": False}
    run = amphw.train(made.model, data, spec=made.case.spec, **settings)
    state = made.pieces.state(run.to_torch())
    assert made.theirs(data, state) < 0.97 * made.theirs(data), "it has learnt"
    for x in made.case.data(3, 2):
        ours = sum(float(reported["loss"].sum()) for reported in run.outputs(x).values())
        assert ours == pytest.approx(made.theirs([x], state), rel=1e-5)


def test_the_program_of_the_manual_runs(cases: Any) -> None:
    page = Path(__file__).parents[2] / "docs" / "models-of-others.md"
    (program, back) = re.findall(r"^```text\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    names: dict[str, Any] = {}
    exec(compile(program, str(page), "exec"), names)
    before = {name: tensor.clone() for name, tensor in names["theirs"].state_dict().items()}
    names["run"] = amphw.train(
        names["model"], cases["gin"].data(32, 1), spec=names["spec"], epochs=1, valid=None, progress=False
    )
    exec(compile(back, str(page), "exec"), names)
    after = names["theirs"].state_dict()
    assert [name for name in before if torch.equal(before[name], after[name])] == []
