"""What a model tells of an instance: what is trained, how wrong it is, and what it predicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from amphw.ir.graph import Graph
from amphw.ir.nodes import Loss

T = TypeVar("T")

FIGURES = ("loss", "accuracy", "error")
"""What losses report of how wrong a model is, by its names. It means nothing without the answers."""


def losses(graph: Graph) -> dict[str, Loss]:
    """The nodes that are trained, by name; without those that are there for what they report."""
    return {name: node for name, node in graph.nodes.items() if isinstance(node, Loss) and node.trains}


def predicted(loss: Loss) -> list[int]:
    """Positions of those outputs of a loss that are no figures; the first is the loss itself."""
    return [k for k, name in enumerate(loss.names) if k and name not in FIGURES]


def prediction_names(graph: Graph, main: str) -> dict[str, tuple[str, str]]:
    """By name all that predictions hold: of which node, and what it is called there.

    main: the loss whose names are told as they are. Of other losses they are LOSS.NAME, and what is reported
    without a loss has a name of its own.
    """
    found: dict[str, tuple[str, str]] = {}
    for node_name, node in graph.nodes.items():
        if isinstance(node, Loss):
            plain = node_name == main or not node.trains
            for name in (node.names[k] for k in predicted(node)):
                found[name if plain else f"{node_name}.{name}"] = (node_name, name)
    return found


def predictions(graph: Graph, main: str, outputs: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
    """What all sinks said of an instance that is no figure, by name as `prediction_names` has it."""
    return {key: outputs[node][name] for key, (node, name) in prediction_names(graph, main).items()}


def sinks(graph: Graph, outputs: Mapping[str, Mapping[str, T]]) -> dict[str, dict[str, T]]:
    """The same with the figures, by loss and name; what is reported without a loss is by its own name."""
    found: dict[str, dict[str, T]] = {}
    for node_name, said in outputs.items():
        node = graph.nodes[node_name]
        if isinstance(node, Loss) and not node.trains:
            found |= {name: {name: said[name]} for name in node.names[1:]}
        else:
            found[node_name] = dict(said)
    return found
