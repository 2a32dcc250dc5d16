"""What models that classify share: the loss node and how a prediction reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from amphw.ir.device import Report
from amphw.ir.expr import ROW, table
from amphw.ir.functions import argmax, cross_entropy, number, same
from amphw.ir.instance import Instance
from amphw.ir.nodes import Loss
from amphw.ir.program import Value, trace


@dataclass
class Unlabelled(Instance):
    """An instance whose true class nobody knows: its table `label` holds zeros in its place."""


def classification_loss(classes: int, name: str = "loss") -> Loss:
    """Cross-entropy of logits [rows, classes] against the table `label` [rows].

    Reports loss, accuracy (1.0 where the largest logit is the label's) and prediction (the class).
    """

    def values(y: Value) -> tuple[Value, Value, Value]:
        label, best = table("label")(ROW), argmax(y)
        return cross_entropy(y, label), same(best, label), number(y, best)

    return Loss(name, trace(values, {"y": classes}), ("loss", "accuracy", "prediction"))


def explained(instance: Instance, report: Report, loss_node: str) -> dict[str, Any]:
    """The first row's prediction; where the true class is known also it, and the probability it was given."""
    outputs = report.outputs[loss_node]
    told: dict[str, Any] = {"prediction": int(outputs["prediction"].flat[0])}
    if not isinstance(instance, Unlabelled):
        told["label"] = int(instance.tables["label"][0])
        told["probability_of_label"] = float(np.exp(-float(outputs["loss"].flat[0])))
    return told
