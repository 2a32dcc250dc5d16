"""The update rules of the other side, as optimisers of PyTorch: fused wherever there is a fused one."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .rules import rate, varies
from .task import Rules


class Optimizers:
    """The optimisers of a module whose children have the names of nodes, which `rules` goes by.

    Differences to those rules: PyTorch's sparse optimisers know no weight decay, and its Adam corrects the
    bias before it adds eps.
    """

    def __init__(self, module: nn.Module, rules: Rules) -> None:
        # Nodes of one rule share a group, because every group costs a step some 20 us.
        kinds: dict[tuple[str, bool], dict[str, dict[str, Any]]] = {}
        for name, child in module.named_children():
            rule = {key: value for key, value in rules[name].items() if key not in ("interval", "reduce")}
            groups = kinds.setdefault((rule["optimizer"], bool(getattr(child, "sparse", False))), {})
            group = groups.setdefault(repr(rule), {"params": [], "rule": rule, "lr": rule["lr"]})
            group["params"] += child.parameters()
        self._made = [
            (_sparse if sparse else _dense)(list(groups.values())) for (_, sparse), groups in kinds.items()
        ]
        self._clipped = any(rule["clip"] for rule in rules.values())
        self._scheduled = any(map(varies, rules.values()))
        self._updates = 0

    def zero_grad(self) -> None:
        for each in self._made:
            each.zero_grad(set_to_none=True)

    def step(self) -> None:
        for each in self._made:
            for group in each.param_groups if self._clipped or self._scheduled else ():
                group["lr"] = rate(group["rule"], self._updates)
                if group["rule"]["clip"]:
                    for parameter in group["params"]:
                        nn.utils.clip_grad_norm_(parameter, group["rule"]["clip"])
            each.step()
        self._updates += 1


def _dense(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    rule = groups[0]["rule"]
    for group in groups:
        group["weight_decay"] = group["rule"]["weight_decay"]
    if rule["optimizer"] == "adam":
        betas = (rule["beta1"], rule["beta2"])
        # On a GPU its count of steps is kept there, so that a step can be recorded.
        there = groups[0]["params"][0].is_cuda
        return torch.optim.Adam(
            groups, lr=rule["lr"], betas=betas, eps=rule["eps"], fused=True, capturable=there
        )
    if rule["optimizer"] == "adagrad":
        on_cpu = not groups[0]["params"][0].is_cuda  # there is none for GPUs
        return torch.optim.Adagrad(groups, lr=rule["lr"], eps=rule["eps"], fused=on_cpu)
    momentum = rule["momentum"] if rule["optimizer"] == "momentum" else 0.0
    return torch.optim.SGD(groups, lr=rule["lr"], momentum=momentum, fused=True)


def _sparse(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    rule = groups[0]["rule"]
    if rule["optimizer"] == "adam":
        betas = (rule["beta1"], rule["beta2"])
        return torch.optim.SparseAdam(groups, lr=rule["lr"], betas=betas, eps=rule["eps"])
    if rule["optimizer"] == "adagrad":
        return torch.optim.Adagrad(groups, lr=rule["lr"], eps=rule["eps"])
    momentum = rule["momentum"] if rule["optimizer"] == "momentum" else 0.0
    return torch.optim.SGD(groups, lr=rule["lr"], momentum=momentum)
