"""Forms whose products are of bfloat16 numbers: they are shown, and count where ours are of them too."""

from __future__ import annotations

import pytest

from amphw.bench import plan as plans
from amphw.bench.forms import BFLOAT16, FLOAT32
from amphw.bench.plan import Plan, worth_trying
from amphw.bench.workloads import WORKLOADS


def plan(**changed: object) -> Plan:
    return Plan(WORKLOADS["mlp"], [], (100,), ["torch"], "python", **changed)  # type: ignore[arg-type]


def test_they_do_not_count_beside_products_of_float32() -> None:
    made = plan()
    assert made.precision == FLOAT32
    assert {form.precision for form in made.forms("torch")} == {FLOAT32}
    assert [f.name for f in made.others("torch")] == ["layers+bf16", "layers+compiled+bf16"]


@pytest.mark.parametrize("able", [True, False])
def test_they_are_tried_where_the_processor_has_instructions_for_them(
    able: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "multiplies_bfloat16", lambda: able)
    (halved, _) = plan().others("torch")
    assert halved.precision == BFLOAT16
    assert worth_trying(plan(), halved) is able
    assert worth_trying(plan(peer_forms=["layers+bf16"]), halved)
    assert all(worth_trying(plan(), form) for form in plan().forms("torch"))
