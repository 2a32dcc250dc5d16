"""The update rules of the other side, as trainers of DyNet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dynet as dy  # type: ignore[import-not-found, unused-ignore]

from .rules import Rule, rate, varies
from .task import Rules


class Trainers:
    """Trainers of nodes that each have a collection, within one of them all, which `rules` goes by.

    One trainer updates all nodes if they share a rule, else each has its own. Rows of a table that an update
    does not touch keep their values, in Momentum and Adam too. Raises ValueError for what DyNet has not got.
    """

    def __init__(self, whole: Any, nodes: Mapping[str, Any], rules: Rules) -> None:
        own = {node: _told(rules[node]) for node in nodes}
        first = next(iter(own.values()))
        alike = all(rule == first for rule in own.values())
        wanted = [(whole, first)] if alike else [(nodes[n], own[n]) for n in nodes]
        self._made = [(_trainer(collection, rule), rule) for collection, rule in wanted]
        self._updates = 0

    def update(self) -> None:
        for trainer, rule in self._made:
            if varies(rule):
                trainer.learning_rate = rate(rule, self._updates)
            trainer.update()
        self._updates += 1


def _told(rule: Rule) -> Rule:
    """A rule less its interval, which batches keep."""
    return {key: value for key, value in rule.items() if key != "interval"}


def _trainer(collection: Any, rule: Rule) -> Any:
    kind = rule["optimizer"]
    for wrong, why in (
        (rule["reduce"] != "mean", "reduce = 'sum': its loss is the mean"),
        (rule["clip"], "clip: it clips the norm of all parameters together"),
        (rule["weight_decay"], "weight_decay: it shrinks parameters apart from the gradient"),
        (
            kind == "momentum" and varies(rule),
            "momentum with a rate that varies: its velocity has the rate in it",
        ),
    ):
        if wrong:
            raise ValueError(f"DyNet cannot follow the update rule's {why}")
    if kind == "adagrad":
        # DyNet adds eps before it takes the root, so that this one has the same limit.
        made = dy.AdagradTrainer(collection, rule["lr"], eps=rule["eps"] ** 2)
    elif kind == "adam":
        made = dy.AdamTrainer(collection, rule["lr"], rule["beta1"], rule["beta2"], rule["eps"])
    elif kind == "momentum":
        made = dy.MomentumSGDTrainer(collection, rule["lr"], rule["momentum"])
    else:
        made = dy.SimpleSGDTrainer(collection, rule["lr"])
    made.set_clip_threshold(0.0)  # it clips at 5 of its own accord
    made.set_sparse_updates(True)
    return made
