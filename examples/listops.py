"""A recursive tensor network that evaluates nested expressions (ListOps, Nangia and Bowman 2018).

An expression is a digit, or an operator and two to four expressions, as in `[max 2 [sum 9 5] 3]`. Its value
is a digit again, sums being taken modulo 10. Each operator has parameters of its own: those of the maximum,
the minimum and the sum take in one operand after another and multiply it with what they know so far; the
median looks at all of them at once. The loss is taken at all nodes of the tree, the accuracy at the root.

`amphw train examples/listops.py` stops at 97 %; always answering the most frequent digit is right for 12 %.
"""

from dataclasses import dataclass

import numpy as np

from amphw import frontend as fe
from amphw.models.base import knob
from amphw.models.plain import PlainModel

OPERATORS = (max, min, lambda v: sum(v) % 10, lambda v: sorted(v)[(len(v) - 1) // 2])


@dataclass(frozen=True)
class Config:
    width: int = knob(32, "width of an expression")
    depth: int = knob(3, "operators within one another, at most")


class ListOps(PlainModel[Config]):
    name, config, summary = "listops", Config, "a recursive network that evaluates nested expressions"
    loss_node = "whole"
    defaults = {
        "train": {"epochs": 20, "max_active_keys": 16, "target": 0.97},
        "update": {"optimizer": "adam", "lr": 0.003, "min_update_interval": 64, "clip": 1.0},
    }

    def write(self, cfg):
        w = cfg.width
        digits, head = fe.Embedding(10, w), fe.Linear(10)
        each, all_of_them, median = fe.Linear(4 * w), fe.Linear(2 * w), fe.Linear(w)

        def one_by_one():
            left, right, both = fe.Linear(w), fe.Linear(w), fe.Linear(w)

            def cell(h, operand):
                return fe.tanh(both(left(h) * right(operand), h, operand))

            return lambda operands: fe.fold(cell, fe.constant(w), operands)

        def together(operands):
            h = fe.reduce(fe.relu(each(operands)), "sum")
            return fe.tanh(median(fe.relu(all_of_them(h))))

        operators = [one_by_one(), one_by_one(), one_by_one(), together]

        def model(x):
            def branch(operands):
                return fe.switch(x.tree.operator, operators, operands)

            h = fe.fold_tree(digits(x.tree.digit), branch, x.tree)
            fe.classify(head(h), x.tree.value, name="parts")
            fe.classify(head(fe.root(h, x.tree)), fe.root(x.tree.value, x.tree), name="whole")

        leaf, node = {"digit": fe.Int(10)}, {"operator": fe.Int(len(OPERATORS)), "value": fe.Int(10)}
        return model, fe.Record(tree=fe.Tree(leaf, node, most=4**cfg.depth, arity=0))

    def data(self, cfg, seed, part):
        rng, count = np.random.default_rng([seed, part == "valid"]), 8000 if part == "train" else 1000
        return [{"tree": expression(rng, cfg.depth, whole=True)} for _ in range(count)]


def expression(rng: np.random.Generator, depth: int, whole: bool = False) -> dict:
    if depth == 0 or not whole and rng.random() < 0.4:
        digit = int(rng.integers(10))
        return {"digit": digit, "value": digit, "operator": 0}  # a leaf's operator is never looked at
    children = [expression(rng, depth - 1) for _ in range(rng.integers(2, 5))]
    operator = int(rng.integers(len(OPERATORS)))
    value = OPERATORS[operator]([child["value"] for child in children])
    return {"operator": operator, "value": value, "children": children}
