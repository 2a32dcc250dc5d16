"""Update rules against naive float64 steps, and everything around them that can be set."""

from __future__ import annotations

import math

import numpy as np
import pytest

from amphw.ir.errors import AmphwError
from amphw.ir.optimizers import OPTIMIZERS
from amphw.ir.program import ParamSpec
from amphw.ir.update import NodeParameters, UpdateRule, initial_parameters

SPECS = (ParamSpec("W", (2, 3)), ParamSpec("b", (3,), "zeros"))


def parameters(rule: UpdateRule, value: float = 1.0) -> NodeParameters:
    return NodeParameters.of((ParamSpec("w", (1,)),), rule, {"w": np.array([value])})


def steps(rule: UpdateRule, gradients: list[float], rows: int = 1) -> list[float]:
    """The parameter, 1 at first, after each update."""
    p, out = parameters(rule), []
    for g in gradients:
        p.gradients["w"][...] = g
        p.rows = rows
        p.update()
        out.append(float(p.values["w"][0]))
    return out


def test_sgd_by_hand() -> None:
    assert steps(UpdateRule(lr=0.1), [1.0, -2.0]) == pytest.approx([0.9, 1.1])


def test_momentum_by_hand() -> None:
    # velocities 1, 0.5 * 1 + 1 = 1.5, 0.5 * 1.5 - 1 = -0.25
    rule = UpdateRule(optimizer="momentum", lr=0.1, momentum=0.5)
    assert steps(rule, [1.0, 1.0, -1.0]) == pytest.approx([0.9, 0.75, 0.775])


def test_adagrad_by_hand() -> None:
    # sums of squares 9, 9 + 16 = 25: steps 0.1 * 3 / 3 and 0.1 * 4 / 5
    rule = UpdateRule(optimizer="adagrad", lr=0.1, eps=0.0)
    assert steps(rule, [3.0, 4.0]) == pytest.approx([0.9, 0.82])


def test_adam_against_the_paper() -> None:
    rule = UpdateRule(optimizer="adam", lr=0.01, beta1=0.8, beta2=0.9, eps=1e-8)
    w, m, v, wanted = 1.0, 0.0, 0.0, []
    gradients = [0.5, -1.5, 2.0, 0.1]
    for n, g in enumerate(gradients, 1):
        m = 0.8 * m + 0.2 * g
        v = 0.9 * v + 0.1 * g * g
        rate = 0.01 * math.sqrt(1 - 0.9**n) / (1 - 0.8**n)
        w -= rate * m / (math.sqrt(v) + 1e-8)
        wanted.append(w)
    assert steps(rule, gradients) == pytest.approx(wanted, rel=1e-12)


def test_lazy_adam_is_adam_where_there_is_a_gradient() -> None:
    """And nothing moves where there is none, whatever the moments are."""
    rules = [UpdateRule(optimizer=name, lr=0.01) for name in ("adam", "lazy_adam")]
    rng = np.random.default_rng(0)
    w = [rng.normal(size=6)] * 2
    slots = [[np.zeros(6), np.zeros(6)] for _ in rules]
    for n in range(4):
        g = rng.normal(size=6) * (np.arange(6) < (6 if n == 0 else 3))
        before = w[1], [s.copy() for s in slots[1]]
        w = [rule.step(w[k], g, slots[k], 1, rule.scalars(n, {})) for k, rule in enumerate(rules)]
        if n:
            for old, new in zip([before[0], *before[1]], [w[1], *slots[1]], strict=True):
                assert np.array_equal(old[3:], new[3:]) and not np.array_equal(old[:3], new[:3])
    assert np.array_equal(w[0][:3], w[1][:3]) and not np.array_equal(w[0][3:], w[1][3:])


def test_nadam_as_pytorch_states_it() -> None:
    rule = UpdateRule(optimizer="nadam", lr=0.01, beta1=0.8, beta2=0.9, eps=1e-8)
    w, m, v, product, wanted = 1.0, 0.0, 0.0, 1.0, []
    gradients = [0.5, -1.5, 2.0, 0.1]
    for n, g in enumerate(gradients, 1):
        mu, following = (0.8 * (1 - 0.5 * 0.96 ** (0.004 * k)) for k in (n, n + 1))
        product *= mu
        m = 0.8 * m + 0.2 * g
        v = 0.9 * v + 0.1 * g * g
        mean = following * m / (1 - product * following) + (1 - mu) * g / (1 - product)
        w -= 0.01 * mean / (math.sqrt(v / (1 - 0.9**n)) + 1e-8)
        wanted.append(w)
    assert steps(rule, gradients) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_float32_keeps_its_type_and_leaves_old_versions_alone(optimizer: str) -> None:
    rule = UpdateRule(optimizer=optimizer, clip=0.5, weight_decay=0.01, warmup=3)
    p = NodeParameters.initial("n", SPECS, rule, seed=1)
    old, kept = p.values["W"], p.values["W"].copy()
    p.gradients["W"][...] = 1.0
    p.rows = 4
    p.update()
    assert p.values["W"].dtype == np.float32 and p.values["W"] is not old
    assert np.array_equal(old, kept) and not np.array_equal(p.values["W"], kept)
    assert p.version == 1 and p.rows == 0 and not p.gradients["W"].any()
    assert sum(len(s) for s in p.slots.values()) == 2 * rule.slots()


def test_mean_and_sum() -> None:
    assert steps(UpdateRule(lr=0.1), [8.0], rows=4) == pytest.approx([0.8])
    assert steps(UpdateRule(lr=0.1, reduce="sum"), [8.0], rows=4) == pytest.approx([0.2])


def test_clip_bounds_the_norm() -> None:
    p = NodeParameters.of((ParamSpec("w", (2,)),), UpdateRule(lr=1.0, clip=1.0), {"w": np.zeros(2)})
    p.gradients["w"][...] = (3.0, 4.0)
    p.rows = 1
    p.update()
    assert p.values["w"].tolist() == pytest.approx([-0.6, -0.8])
    p.gradients["w"][...] = (0.3, 0.4)  # within the bound: as it is
    p.rows = 1
    p.update()
    assert p.values["w"].tolist() == pytest.approx([-0.9, -1.2])


def test_weight_decay_pulls_towards_zero() -> None:
    assert steps(UpdateRule(lr=0.1, weight_decay=0.5), [0.0, 0.0]) == pytest.approx([0.95, 0.9025])


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        (UpdateRule(lr=2.0), {0: 2.0, 999: 2.0}),
        (
            UpdateRule(lr=2.0, schedule="step", schedule_steps=10, schedule_gamma=0.5),
            {0: 2.0, 9: 2.0, 10: 1.0, 25: 0.5},
        ),
        (
            UpdateRule(lr=2.0, schedule="exponential", schedule_steps=10, schedule_gamma=0.25),
            {0: 2.0, 5: 1.0, 10: 0.5},
        ),
        (
            UpdateRule(lr=2.0, schedule="cosine", schedule_steps=10),
            {0: 2.0, 5: 1.0, 10: 0.0, 20: 0.0},
        ),
        (UpdateRule(lr=2.0, warmup=4), {0: 0.5, 1: 1.0, 3: 2.0, 4: 2.0}),
        (UpdateRule(lr=2.0, schedule="cosine", schedule_steps=0), {0: 2.0, 1: 0.0}),
    ],
)
def test_schedules(rule: UpdateRule, wanted: dict[int, float]) -> None:
    assert {n: rule.rate(n) for n in wanted} == pytest.approx(wanted)


def test_nothing_accumulated_changes_nothing() -> None:
    p = parameters(UpdateRule(weight_decay=0.5))
    before = p.values
    p.update()
    assert p.version == 0 and p.values is before


def test_due_counts_rows() -> None:
    p = parameters(UpdateRule(interval=5))
    p.rows = 4
    assert not p.due
    p.rows = 5
    assert p.due


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        (
            {"optimizer": "sdg"},
            "optimizer = 'sdg', allowed is sgd, momentum, adam, lazy_adam, adagrad, nadam",
        ),
        ({"schedule": "linear"}, "schedule = 'linear', allowed is constant, step, exponential, cosine"),
        ({"reduce": "max"}, "reduce = 'max', allowed is sum, mean"),
        ({"interval": 0}, "interval = 0, allowed is 1 or more (gradient rows)"),
    ],
)
def test_settings_that_are_refused(setting: dict, text: str) -> None:
    with pytest.raises(AmphwError) as caught:
        UpdateRule(**setting)
    assert str(caught.value) == f"update rule: {text}"


def test_initial_values_depend_on_names_and_seed_alone() -> None:
    one = initial_parameters({"a": SPECS, "b": SPECS}, {}, 7)
    two = initial_parameters({"b": SPECS, "a": SPECS, "none": ()}, {"b": UpdateRule(lr=3.0)}, 7)
    assert sorted(two) == ["a", "b"]
    for node in one:
        assert np.array_equal(one[node].values["W"], two[node].values["W"])
    assert not np.array_equal(one["a"].values["W"], one["b"].values["W"])
    assert not np.array_equal(one["a"].values["W"], initial_parameters({"a": SPECS}, {}, 8)["a"].values["W"])
    assert two["b"].rule.lr == 3.0 and two["a"].rule == UpdateRule()


def test_checkpoints_restore_values_slots_and_version() -> None:
    rule = UpdateRule(optimizer="adam")
    p = NodeParameters.initial("n", SPECS, rule, seed=1)
    p.gradients["W"][...] = 0.5
    p.rows = 2
    p.update()
    stored = {k: v.copy() for k, v in p.tensors().items()}
    q = NodeParameters.initial("n", SPECS, rule, seed=2)
    q.rows = 3
    q.restore(stored, p.version)
    assert q.version == 1 and q.rows == 0
    for both in (p, q):  # and they go on alike
        both.gradients["W"][...] = -1.0
        both.rows = 1
        both.update()
    assert all(np.array_equal(q.tensors()[k], v) for k, v in p.tensors().items())


def test_checkpoints_that_do_not_fit() -> None:
    p = NodeParameters.initial("n", SPECS, UpdateRule(optimizer="momentum"), seed=1)
    stored = dict(p.tensors())
    without = {k: v for k, v in stored.items() if k != "W#slot0"}
    with pytest.raises(AmphwError) as caught:
        p.restore(without, 0)
    assert str(caught.value) == "the checkpoint has no tensor 'W#slot0'"
    with pytest.raises(AmphwError) as caught:
        p.restore({**stored, "b": np.zeros(4)}, 0)
    assert str(caught.value) == "tensor 'b' has shape (4,), expected (3,)"
