"""Models are found by name, fit what the host needs of one, and build their instances when asked."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from amphw.host.config import resolve
from amphw.host.session import update_rules
from amphw.ir.check import infer
from amphw.ir.errors import AmphwError
from amphw.ir.instance import Instance
from amphw.ir.serialise import fingerprint
from amphw.models import MODELS, Model, ModelError, get_model
from amphw.models.base import Instances, at_least, limited


def test_a_model_is_found_by_its_name() -> None:
    assert get_model("list-reduction").name == "list-reduction"


def test_a_model_has_the_name_that_it_is_found_by_and_no_other_is_imported() -> None:
    assert all(MODELS[name].name == name for name in MODELS)
    program = (
        "import sys; from amphw.models import MODELS; assert 'mnist' in MODELS; MODELS['mnist']; "
        "print([m for m in ('mnist', 'ggnn', 'transformer') if f'amphw.models.{m}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['mnist']"


def test_an_unknown_name_is_answered_with_the_names_there_are() -> None:
    with pytest.raises(
        ModelError, match=r"no model 'list-reductio'\. Did you mean list-reduction\? Models: "
    ):
        get_model("list-reductio")
    with pytest.raises(AmphwError, match=r"no model 'zzz'\. Models: list-reduction, mnist"):
        get_model("zzz")


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_every_model_has_a_configuration_that_resolves_and_a_graph_that_checks(model: Model[Any]) -> None:
    cfg = resolve(model.config, model.defaults)
    graph = model.graph(cfg.model)
    assert infer(graph).behaviours[model.loss_node].report[: len(model.metrics)] == model.metrics
    assert model.metric in model.metrics
    assert fingerprint(graph) == fingerprint(model.graph(cfg.model))
    assert update_rules(cfg, graph)
    assert model.summary and not model.summary.endswith(".")


def test_instances_are_built_when_asked_for() -> None:
    built: list[int] = []

    def build(i: int) -> Instance:
        built.append(i)
        return Instance({"i": i})

    instances = Instances(5, build, size=12)
    assert (len(instances), instances.size, built) == (5, 12, [])
    assert instances[-1].attrs == {"i": 4}
    assert [i.attrs["i"] for i in instances[1:3]] == [1, 2]
    assert built == [4, 1, 2]
    assert Instances(5, build).size == 5
    with pytest.raises(IndexError, match="instance 5 of 5"):
        instances[5]
    assert [i.attrs["i"] for i in instances] == [0, 1, 2, 3, 4]


def test_limits_of_a_configuration_are_named() -> None:
    at_least(1, hidden=1, embedding=None)
    with pytest.raises(ValueError, match="embedding is 0, expected an integer of 1 or more"):
        at_least(1, hidden=1, embedding=0)


@pytest.mark.parametrize(("limit", "expected"), [(0, 7), (3, 3), (9, 7)])
def test_a_limit_of_zero_is_none(limit: int, expected: int) -> None:
    assert limited(7, limit) == expected
