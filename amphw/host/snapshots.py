"""Parameters between a device and a checkpoint, and the average of replicas.

Everything here wants a drained device. What `Device.parameters()` hands out are then the device's own
parameters: what is written into them is what the device goes on with.

A checkpoint's tensors are named `node.parameter`, and beside it `node.parameter#slot0` (optimiser); where a
node had gathered gradients that no update has taken yet, `node.parameter#gradient`; and where the run has an
average of its parameters (`train.average`), `node.parameter#average`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from amphw.host.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from amphw.ir.averaging import MovingAverage
from amphw.ir.device import Device
from amphw.ir.errors import AmphwError
from amphw.ir.graph import Graph
from amphw.ir.meeting import mean
from amphw.ir.passes import originals
from amphw.ir.serialise import fingerprint
from amphw.ir.update import NodeParameters

_GRADIENT = "#gradient"
_AVERAGE = "#average"


def save(
    path: Path,
    parameters: Mapping[str, NodeParameters],
    graph: Graph,
    model: str,
    config: str,
    counters: Mapping[str, Any],
    average: MovingAverage | None = None,
) -> None:
    """Save the parameters of a drained device. config: TOML text. counters: JSON values of the run. average:
    of the parameters.

    Gradients short of an update are saved as they are rather than applied, so that going on from here gives
    what an uninterrupted run gives. Raises CheckpointError and WriteError.
    """
    tensors, nodes = {}, {}
    for node, p in parameters.items():
        nodes[node] = {"version": p.version, "rows": p.rows, "optimizer": p.rule.optimizer, "state": p.state}
        tensors.update({f"{node}.{name}": array for name, array in p.tensors().items()})
        tensors.update({f"{node}.{name}": array for name, array in _gathered(p).items()})
    averaged = {}
    if average is not None and average.updates:
        averaged["averaged"] = average.updates
        for node, values in average.values.items():
            tensors.update({f"{node}.{name}{_AVERAGE}": array for name, array in values.items()})
    header = {
        "graph": fingerprint(graph.unreplicated or graph),
        "model": model,
        "config": config,
        "counters": {**counters, **averaged, "nodes": nodes},
    }
    save_checkpoint(path, tensors, header)


def load(
    path: Path,
    device: Device,
    graph: Graph,
    average: MovingAverage | None = None,
    *,
    values_only: bool = False,
) -> dict[str, Any]:
    """Restore the device from a checkpoint -> its counters.

    It may have been saved with another number of replicas: each then gets the mean of those that were saved.
    average: is restored, too; where the checkpoint has none, it begins with the next update. values_only: for
    inference: the average in place of the parameters, where there is one, and no optimiser's state. Raises
    CheckpointError for a file that cannot be read, another graph, and an optimiser with another state.
    """
    plain = fingerprint(graph.unreplicated or graph)
    # Before replicas could be another number, checkpoints went by the graph that has them.
    tensors, header = load_checkpoint(path, plain, fingerprint(graph))
    counters: dict[str, Any] = header["counters"]
    averages: dict[str, dict[str, np.ndarray | None]] = {}
    for node, p in device.parameters().items():
        try:
            about, own = _saved(node, graph, counters["nodes"], tensors)
            averages[node] = {name: own.get(f"{name}{_AVERAGE}") for name in p.values}
            if values_only:
                own |= {name: a for name, a in averages[node].items() if a is not None}
                own = {**{n: a for n, a in p.tensors().items() if "#slot" in n}, **_values(own)}
            if not values_only and about["optimizer"] != p.rule.optimizer:
                # The state of another optimiser can have the same shapes, and would load without a word.
                raise AmphwError(f"it was trained with {about['optimizer']}, not {p.rule.optimizer}")
            p.restore(own, int(about["version"]))
            if not values_only:
                p.state = {name: float(about["state"][name]) for name in p.state}
            _restore_gradients(p, own, 0 if values_only else int(about["rows"]))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{path} is damaged: its header says nothing usable of node '{node}' ({error!r}); "
                "use an earlier checkpoint"
            ) from error
        except AmphwError as error:
            raise CheckpointError(
                f"{path} does not fit node '{node}': {error}; train on with the optimiser and the model "
                "settings that it was saved with"
            ) from error
    if average is not None:
        _restore_average(average, averages, counters, path)
    return counters


def _restore_average(
    average: MovingAverage,
    found: Mapping[str, Mapping[str, np.ndarray | None]],
    counters: Mapping[str, Any],
    path: Path,
) -> None:
    """found: by node and parameter, what the checkpoint has of each: all of them, or none."""
    updates = counters.get("averaged", 0)
    there = [array is not None for own in found.values() for array in own.values()]
    if not isinstance(updates, int) or not (all(there) if updates > 0 else updates == 0 and not any(there)):
        raise CheckpointError(
            f"{path} is damaged: the average of its parameters is said to be over {updates!r} updates, and "
            "not all of it, or more, is there; use an earlier checkpoint"
        )
    average.updates = updates
    average.values = {n: {name: a for name, a in own.items() if a is not None} for n, own in found.items()}


def _saved(
    node: str, graph: Graph, nodes: Mapping[str, Any], tensors: Mapping[str, np.ndarray]
) -> tuple[Mapping[str, Any], dict[str, np.ndarray]]:
    """What a checkpoint's header and its tensors say of a node. nodes: what the header says of each.

    Of a node with another number of replicas it is the mean of those that were saved, which have made as
    many updates in all; the gradients that they had gathered are the first one's.
    """
    group = next((g for g in graph.replicas if node in g), (node,))
    name = originals(graph).get(node, node)
    saved = [name] if name in nodes else _numbered(name, nodes)
    if node in nodes and len(saved) in (0, len(group)):
        return nodes[node], _of(node, tensors)
    if not saved:
        raise KeyError(node)
    abouts, each = [nodes[s] for s in saved], [_of(s, tensors) for s in saved]
    own = {key: mean([e[key] for e in each]) for key in each[0] if not key.endswith(_GRADIENT)}
    rows = sum(int(a["rows"]) for a in abouts) if node == group[0] else 0
    if rows:
        for key in {k for e in each for k in e if k.endswith(_GRADIENT)}:
            own[key] = np.sum([e[key] for e in each if key in e], axis=0)
    state = {k: sum(a["state"][k] for a in abouts) / len(abouts) for k in abouts[0]["state"]}
    version = round(sum(int(a["version"]) for a in abouts) / len(group))
    return {**abouts[0], "version": version, "rows": rows, "state": state}, own


def _numbered(node: str, nodes: Mapping[str, Any]) -> list[str]:
    """The replicas of a node among these."""
    names = (f"{node}_{k}" for k in itertools.count())
    return list(itertools.takewhile(nodes.__contains__, names))


def _of(node: str, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    mine = f"{node}."
    return {name.removeprefix(mine): array for name, array in tensors.items() if name.startswith(mine)}


def average_replicas(
    device: Device, groups: Iterable[tuple[str, ...]], average: MovingAverage | None = None
) -> None:
    """Give every copy of a group the mean of their values, of their optimiser state and of their averages."""
    parameters = device.parameters()
    for group in groups:
        copies = [parameters[node] for node in group if node in parameters]
        if len(copies) < 2:
            continue  # copies of a node without parameters are equal already
        for name in copies[0].values:
            middle = mean([p.values[name] for p in copies])
            slots = [mean(list(arrays)) for arrays in zip(*(p.slots[name] for p in copies), strict=True)]
            for p in copies:
                p.values = {**p.values, name: middle.copy()}
                for own, shared in zip(p.slots[name], slots, strict=True):
                    own[...] = shared
            if average is not None and average.updates:
                averages = [average.values[node][name] for node in group]
                middle = mean(averages)
                for each in averages:
                    each[...] = middle


@contextmanager
def shown(device: Device, average: MovingAverage | None) -> Iterator[None]:
    """The drained device computes with the average instead of its parameters, which come back at the end.

    They do not where this ends with an error: neither does the run go on with this device then.
    """
    if average is None or not average.updates:
        yield
        return
    raw = {}
    for node, p in device.parameters().items():
        raw[node] = {name: value.copy() for name, value in p.values.items()}
        p.values = {name: average.values[node][name].astype(v.dtype) for name, v in p.values.items()}
    yield
    for node, p in device.parameters().items():
        p.values = raw[node]


def forget_gradients(device: Device) -> None:
    """Let go of what no update has taken yet."""
    for p in device.parameters().values():
        p.rows = 0
        for gradient in p.gradients.values():
            gradient[...] = 0


def first_nonfinite_parameter(parameters: Mapping[str, NodeParameters]) -> tuple[str, str] | None:
    """(node, parameter) that holds a NaN or an infinity, or None; also in what `save` keeps beside values."""
    for node, p in parameters.items():
        for name, value in {**p.tensors(), **_gathered(p)}.items():
            if not np.isfinite(value).all():
                return node, name
    return None


def _gathered(p: NodeParameters) -> dict[str, np.ndarray]:
    """The gradients that no update has taken yet, by the names that they are saved under."""
    return {f"{name}{_GRADIENT}": array for name, array in p.gradients.items()} if p.rows else {}


def _values(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array for name, array in tensors.items() if "#" not in name}


def _restore_gradients(p: NodeParameters, tensors: Mapping[str, np.ndarray], rows: int) -> None:
    if rows:
        for name, gradient in p.gradients.items():
            gradient[...] = tensors[f"{name}{_GRADIENT}"]
    p.rows = rows
