"""A model on a device: the graph with its update rules and settings, and the slots that instances go into.

Training and prediction both begin here, so that they load the same graph with the same rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from amphw.engine.parts.links import FIXED
from amphw.host.config import RunConfig, UpdateConfig, check_nodes, update_for
from amphw.host.modes import TrainingMode, training_mode
from amphw.host.pumping import Pump
from amphw.host.records import Slice
from amphw.host.run_model import RunModel
from amphw.host.trace import Trace
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import Device, DeviceOptions, Linked, Places
from amphw.ir.errors import GraphError
from amphw.ir.graph import Graph
from amphw.ir.passes import originals, replicate, tile
from amphw.ir.start import Values, starting_at
from amphw.ir.told import losses
from amphw.ir.update import NodeParameters, UpdateRule


def graph_of(model: RunModel, cfg: RunConfig[Any]) -> Graph:
    """The model's graph, in the tiles and with the replicas that are asked for. Raises GraphError where
    there can be no such."""
    graph: Graph = model.graph(cfg.model)
    for node, n in _counts(cfg, "tile"):
        try:
            graph = tile(graph, n, [node])
        except GraphError as error:
            raise GraphError(f"device.tile = '{cfg.device.tile}': {error}") from error
    for node, n in _counts(cfg, "replicate"):
        try:
            if node in graph.nodes and node not in graph.parameterised:
                names = ", ".join(graph.parameterised) or "none"
                raise GraphError(f"it has no parameters; nodes that do: {names}", node=node)
            graph = replicate(graph, node, n, cfg.device.replicate_rule, cfg.train.seed)
        except GraphError as error:
            raise GraphError(f"device.replicate = '{cfg.device.replicate}': {error}") from error
    return graph


def _counts(cfg: RunConfig[Any], setting: str) -> list[tuple[str, int]]:
    """Nodes, and into how many tiles or replicas they go."""
    found, text = [], getattr(cfg.device, setting)
    for piece in filter(None, text.split(",")):
        node, _, n = piece.strip().rpartition(":")
        if not (node and n.isdigit()):
            raise ConfigError(f"device.{setting} = '{text}': '{piece}' is not of the form NODE:N")
        found.append((node, int(n)))
    return found


class Session:
    """A device loaded with a model's graph. start: values that parameters start at, by node and name. log:
    whether the device keeps its service order.

    Slots 0 .. window-1 train, the `max_infer_keys` slots behind them infer. Raises ConfigError where
    `[update.nodes]` names what the graph does not have, and GraphError where the device refuses the graph.
    """

    def __init__(
        self,
        model: RunModel,
        cfg: RunConfig[Any],
        device: Device,
        trace: Trace | None = None,
        start: Values | None = None,
        log: bool = False,
    ) -> None:
        self.model, self.cfg, self.device = model, cfg, device
        self.graph = graph_of(model, cfg)
        _check_figures(model, self.graph)
        self.rules = update_rules(cfg, self.graph)
        self.mode: TrainingMode = training_mode(cfg.train)
        settings: dict[str, Any] = asdict(cfg.device)
        if trace is not None:
            settings["trace"] = tracer(trace)
        options = DeviceOptions(
            max_active_keys=self.mode.window,
            max_infer_keys=cfg.train.max_infer_keys,
            updates=self.mode.updates,
            seed=cfg.train.seed,
            log=log,
            settings=settings,
        )
        # Checkpoints go by the graph itself: a prediction knows nothing of where training started.
        if log and cfg.train.clip_norm:
            raise ConfigError(
                "train.clip_norm: the controller changes gradients between frames, and a log keeps what the "
                "device does; train without --log, or with update.clip, by which nodes clip for themselves"
            )
        _check_meetings(cfg, self.graph, log)
        if cfg.device.links and not isinstance(device, Linked):
            raise ConfigError(f"device.links: {device.capabilities().name}: {FIXED}")
        if cfg.device.place and not isinstance(device, Places):
            raise ConfigError(
                f"device.place: {device.capabilities().name} runs all nodes; nodes are placed in a run on "
                "several devices, such as --device cpu,a=fixed:q7.9"
            )
        start = _shared_start(self.graph, self.rules, cfg.train.seed, start or {})
        device.load(starting_at(self.graph, start) if start else self.graph, self.rules, options)
        if log and not hasattr(device, "log"):
            raise ConfigError(
                f"{device.capabilities().name} keeps no log of what it does; train on another device, or "
                "without --log"
            )
        self.train_pump = Pump(device, 0, self.mode.window)
        self.infer_pump = Pump(device, self.mode.window, cfg.train.max_infer_keys)


def _check_meetings(cfg: RunConfig[Any], graph: Graph, log: bool) -> None:
    """Raise ConfigError where copies of nodes cannot meet within an epoch."""
    every = cfg.device.replicate_every
    if every and not graph.replicas:
        raise ConfigError(
            f"device.replicate_every is {every}, but no node has copies that could meet; give "
            "device.replicate=NODE:N, or leave device.replicate_every out"
        )
    if every and log:
        raise ConfigError(
            "device.replicate_every: the controller changes parameters between frames, and a log keeps what "
            "the device does; train without --log, or without device.replicate_every"
        )


def _check_figures(model: RunModel, graph: Graph) -> None:
    """Raise GraphError where the model promises figures that no loss of its graph reports."""
    found = losses(graph)
    if model.loss_node not in found:
        raise GraphError(
            f"the model's loss_node is '{model.loss_node}'; its losses are {', '.join(found) or 'none'}"
        )
    reported = found[model.loss_node].names
    if missing := [m for m in dict.fromkeys((*model.metrics, model.metric)) if m not in reported]:
        raise GraphError(
            f"the model's figures include {', '.join(missing)}, but its loss reports {', '.join(reported)}; "
            "set its metrics and metric to names among those",
            node=model.loss_node,
        )


def update_rules(cfg: RunConfig[Any], graph: Graph) -> dict[str, UpdateRule]:
    """The rule of every node with parameters. `[update.nodes.cell]` also holds for replicas and tiles of
    `cell`, except where `[update.nodes.cell_0]` says otherwise. Raises ConfigError for a node that does not
    exist."""
    original = originals(graph)
    for node, n in _counts(cfg, "tile"):
        original.update((f"{node}_{k}", node) for k in range(n))
    nodes = graph.parameterised
    check_nodes(cfg, _unique([*nodes, *(original[n] for n in nodes if n in original)]))
    size = {copy: len(group) for group in graph.replicas for copy in group}
    rules = {}
    for node in nodes:
        own = node in cfg.node_updates or node not in original
        rule = update_rule(update_for(cfg, node if own else original[node]))
        rules[node] = rule if own else _among(rule, size.get(node, 1), cfg.device.replicate_interval)
    return rules


def _among(rule: UpdateRule, n: int, interval: str) -> UpdateRule:
    """The rule of one of n replicas, for that of the node.

    Where each gathers the whole interval, all together update as often as the node would: what counts
    updates, the schedule and the warm-up, then counts one n-th of them. Where they divide it, each updates as
    often as the node would.
    """
    if interval == "divided":
        return replace(rule, interval=max(1, round(rule.interval / n)))
    steps, warmup = max(1, round(rule.schedule_steps / n)), round(rule.warmup / n)
    return replace(rule, schedule_steps=steps, warmup=warmup)


def _shared_start(graph: Graph, rules: Mapping[str, UpdateRule], seed: int, start: Values) -> Values:
    """`start` where replicas begin with what their node would: given for it, or drawn under its name."""
    shared = dict(start)
    for copy, node in originals(graph).items():
        specs = graph.nodes[copy].params
        if copy in start or not specs:
            continue
        drawn = NodeParameters.initial(node, specs, rules[copy], seed).values
        shared[copy] = {**drawn, **start.get(node, {})}
        shared.pop(node, None)
    return shared


def update_rule(update: UpdateConfig) -> UpdateRule:
    """The IR's rule for an update section; the fields have the same names but for the interval."""
    settings = asdict(update)
    return UpdateRule(interval=settings.pop("min_update_interval"), **settings)


def tracer(trace: Trace) -> Any:
    """What a device calls for each frame: (worker, node, direction, start_us, duration_us, rows, flow_in,
    flow_out), on the clock of `time.perf_counter`. Devices import nothing of the host, hence no Slice."""

    def note(
        worker: int,
        node: str,
        direction: Any,
        start_us: float,
        duration_us: float,
        rows: int,
        flow_in: int | None = None,
        flow_out: int | None = None,
    ) -> None:
        trace.add(Slice(worker, node, direction, start_us, duration_us, rows, flow_in, flow_out))

    return note


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
