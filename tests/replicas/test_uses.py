"""Which strategy has a use for which setting, and what is said to one that has none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from amphw.host.config import ReplicasConfig
from amphw.ir.config_fields import ConfigError, options
from amphw.replicas.run import STRATEGIES, check_ranks
from amphw.replicas.uses import USES
from tests.host.training import MODEL
from tests.replicas.test_equivalence import settings

OTHER: dict[str, Any] = {
    "servers": 1,
    "machine_ranks": 2,
    "average_dense": False,
    "average_sparse": False,
    "sparse_from": 5,
    "every": 3,
    "every_updates": 3,
    "wire": "float16",
    "outer_lr": 0.5,
    "outer_momentum": 0.5,
    "partitions": "2",
    "bandwidth": "1Gb/s",
    "staleness": 2,
    "accumulate": False,
    "apply": "mean",
}
"""Of each setting a value that is not its default."""


def test_every_setting_says_who_has_a_use_for_it() -> None:
    assert USES.keys() == OTHER.keys() == options(ReplicasConfig).keys() - {"strategy"}
    assert all(set(use.strategies) < set(STRATEGIES) for use in USES.values())


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_the_table_says_what_strategies_say_of_themselves(strategy: str) -> None:
    made = STRATEGIES[strategy](settings(MODEL, 1, f"replicas.strategy={strategy}"))
    assert made.in_step == (strategy in USES["average_dense"].strategies)
    assert made.in_step != (strategy in USES["every"].strategies)
    assert made.serves == (strategy in USES["servers"].strategies)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@pytest.mark.parametrize("name", OTHER)
def test_a_setting_without_effect_is_refused_with_the_reason(strategy: str, name: str) -> None:
    value = OTHER[name]
    given = f"replicas.{name}={str(value).lower() if isinstance(value, bool) else value}"
    cfg = settings(MODEL, 1, f"replicas.strategy={strategy}", given)
    if strategy in USES[name].strategies:
        check_ranks(2, cfg)
        return
    says = (
        f"replicas.{name}={value} has no effect with replicas.strategy={strategy}: {USES[name].otherwise}; "
    )
    with pytest.raises(ConfigError, match=re.escape(says)):
        check_ranks(2, cfg)
    check_ranks(2, cfg, besides=[name])


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_setting_at_its_default_is_no_matter(strategy: str) -> None:
    """As a run's own config.toml has it."""
    given = [f"replicas.{n}={str(options(ReplicasConfig)[n].default).lower()}" for n in USES]
    check_ranks(2, settings(MODEL, 1, *given, f"replicas.strategy={strategy}"))


def test_the_page_has_the_same_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "replicas.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `replicas\.(\w+)` \| ([^|]*) \|$", page, re.MULTILINE)
    assert [name for name, _ in rows] == list(USES)
    for name, listed in rows:
        assert sorted(re.findall(r"`([\w-]+)`", listed)) == sorted(USES[name].strategies), name
