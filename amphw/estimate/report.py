"""A placement's figures for other programs: JSON values, seconds and bytes, instances a second."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from amphw.estimate.network.cost_model import CostModel, Estimate


def model_json(model: CostModel) -> dict[str, Any]:
    """What estimates are made of: devices, messages, and each node's work and times."""
    return {
        "devices": [
            {
                "label": d.label,
                "name": d.name,
                "memory": d.memory,
                "most_nodes": d.most_nodes,
                "link": None if d.link is None else asdict(d.link),
            }
            for d in model.devices.values()
        ],
        "host": {
            "workers": model.workers,
            "processors": model.processors,
            "pumping_s": model.host.pumping,
            "beginning_s": model.host.beginning,
            "handing_s": model.host.handing,
            "nodes_s": dict(model.host.nodes),
            "origin": model.host.origin,
            "how": model.host.how,
        },
        "keys": model.keys,
        "messages": asdict(model.traffic.messages) | {"origin": model.traffic.origin},
        "nodes": [_node(model, name) for name in model.nodes],
        "edges": [asdict(edge) for edge in model.traffic.edges],
    }


def _node(model: CostModel, name: str) -> dict[str, Any]:
    return {
        "name": name,
        **asdict(model.traffic.nodes[name]),
        "work": asdict(model.work[name]),
        "on": {label: asdict(model.seconds[name, label]) for label in model.allowed(name)},
        "refused": {label: why for (node, label), why in model.refused.items() if node == name},
    }


def estimate_json(of: Estimate) -> dict[str, Any]:
    """One placement."""
    return asdict(of)
