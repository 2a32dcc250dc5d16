"""A session gives the device the graph, each node its rule, and the configuration's settings."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.host.config import UpdateConfig
from amphw.host.session import Session, graph_of, update_rule, update_rules
from amphw.host.trace import Trace
from amphw.ir.config_fields import ConfigError
from amphw.ir.errors import GraphError
from amphw.ir.passes import replicate
from amphw.ir.reference import ReferenceDevice
from amphw.ir.serialise import fingerprint
from amphw.ir.update import UpdateRule
from tests.host.training import MODEL, LoadedNull, ToyConfig, settings


def test_every_setting_of_an_update_reaches_the_rule() -> None:
    assert update_rule(UpdateConfig()) == UpdateRule(interval=32)
    given = UpdateConfig(7, "adam", 0.3, 0.8, 0.7, 0.6, 1e-4, 0.01, 2.0, "sum", "step", 9, 0.25, 5)
    assert update_rule(given) == UpdateRule(
        7, "adam", 0.3, 0.8, 0.7, 0.6, 1e-4, 0.01, 2.0, "sum", "step", 9, 0.25, 5
    )


def test_a_node_has_its_own_rule() -> None:
    cfg = settings("update.lr=0.5", "update.nodes.head.lr=0.25")
    rules = update_rules(cfg, MODEL.graph(cfg.model))
    assert (rules["cell"].lr, rules["head"].lr) == (0.5, 0.25)


def test_replicas_follow_the_node_that_they_are_copies_of() -> None:
    cfg = settings("replicas=2", "update.nodes.cell.lr=0.5", "update.nodes.cell_1.lr=0.125")
    rules = update_rules(cfg, MODEL.graph(cfg.model))
    assert (rules["cell_0"].lr, rules["cell_1"].lr, rules["head"].lr) == (0.5, 0.125, 0.01)


def test_replicas_that_gather_the_whole_interval_divide_what_counts_updates() -> None:
    given = ("device.replicate=cell:4", "min_update_interval=80", "schedule_steps=200", "warmup=40")
    cfg = settings(*given)
    rules = update_rules(cfg, graph_of(MODEL, cfg))
    for k in range(4):
        rule = rules[f"cell_{k}"]
        assert (rule.interval, rule.schedule_steps, rule.warmup) == (80, 50, 10)
    assert (rules["head"].interval, rules["head"].schedule_steps) == (80, 200)
    cfg = settings(*given, "device.replicate_interval=divided")
    rule = update_rules(cfg, graph_of(MODEL, cfg))["cell_3"]
    assert (rule.interval, rule.schedule_steps, rule.warmup) == (20, 200, 40)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("cel:2", "there is no such node to replicate .there are: x, cell, head, relu, loss"),
        ("relu:2", "'relu': it has no parameters; nodes that do: cell, head"),
        ("cell:0", "0 replicas; take 1 or more"),
        ("cell:2,cell:2", "it is replicated already, as cell_0, cell_1"),
    ],
)
def test_what_cannot_be_replicated_says_why(given: str, message: str) -> None:
    with pytest.raises(GraphError, match=f"device.replicate = '{given}': .*{message}"):
        graph_of(MODEL, settings(f"device.replicate={given}"))


def test_a_replicate_without_a_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="'cell' is not of the form NODE:N"):
        graph_of(MODEL, settings("device.replicate=cell"))


def test_the_model_s_replicas_and_the_device_s_are_the_same_graph() -> None:
    cfg = settings("device.replicate=cell:2")
    ours = fingerprint(graph_of(MODEL, settings("replicas=2")))
    assert fingerprint(graph_of(MODEL, cfg)) == ours
    with pytest.raises(GraphError, match="it is replicated already"):
        graph_of(MODEL, settings("replicas=2", "device.replicate=cell:2"))
    assert fingerprint(graph_of(MODEL, settings("device.replicate=cell:1"))) == fingerprint(
        MODEL.graph(ToyConfig())
    )


def test_replicas_start_with_what_the_node_would() -> None:
    one, four = ReferenceDevice(), ReferenceDevice()
    Session(MODEL, settings(), one)
    Session(MODEL, settings("device.replicate=cell:4"), four)
    for k in range(4):
        for name, value in one.parameters()["cell"].values.items():
            assert (four.parameters()[f"cell_{k}"].values[name] == value).all()
    given = {"cell": {"b": np.full(8, 2.0, np.float32)}}
    Session(MODEL, settings("device.replicate=cell:4"), four, start=given)
    assert all((four.parameters()[f"cell_{k}"].values["b"] == 2).all() for k in range(4))


def test_a_rule_for_nobody_is_refused() -> None:
    cfg = settings("replicas=2", "update.nodes.cells.lr=0.5")
    with pytest.raises(ConfigError, match="'cells' with parameters. Did you mean cell.*cell_0, cell_1, head"):
        update_rules(cfg, MODEL.graph(cfg.model))


def test_replicas_of_a_node_without_parameters_have_no_rules() -> None:
    cfg = settings()
    graph = replicate(MODEL.graph(cfg.model), "relu", 2)
    assert set(update_rules(cfg, graph)) == {"cell", "head"}


@pytest.mark.parametrize(
    ("overrides", "keys", "updates"),
    [
        (("max_active_keys=5",), 5, "self"),
        (("mode=sync", "max_active_keys=5"), 1, "controller"),
        (("mode=pipeline", "pipeline_depth=3"), 3, "controller"),
    ],
)
def test_the_mode_decides_slots_and_updates(overrides: tuple[str, ...], keys: int, updates: str) -> None:
    device = LoadedNull()
    Session(MODEL, settings(*overrides, "max_infer_keys=7", "seed=11"), device)
    options = device.options
    assert (options.max_active_keys, options.max_infer_keys) == (keys, 7)
    assert (options.updates, options.seed) == (updates, 11)


def test_device_settings_and_the_trace_are_handed_on() -> None:
    device, trace = LoadedNull(), Trace()
    overrides = ("workers=3", "placement=pinned", "policy=fifo", "min_rows=4", "frame_cap=8", "frame_rows=32")
    overrides += ("depth=2", "memory=1048576", "strict=true", "device.silence=3.5")
    Session(MODEL, settings(*overrides), device, trace)
    given = dict(device.options.settings)
    note = given.pop("trace")
    assert given == {
        "links": "",
        "clock": "",
        "lanes": 16,
        "silence": 3.5,
        "placing": "heuristic",
        "workers": 3,
        "placement": "pinned",
        "policy": "fifo",
        "min_rows": 4,
        "gemm": "auto",
        "precision": "float32",
        "frame_cap": 8,
        "frame_rows": 32,
        "depth": 2,
        "memory": 1048576,
        "place": "",
        "tile": "",
        "replicate": "",
        "replicate_every": 0,
        "replicate_rule": "least-loaded",
        "replicate_interval": "whole",
        "strict": True,
    }
    note(1, "cell", "forward", 10.0, 2.5, 6, None, 3)
    note(0, "cell", "update", 13.0, 1.0, 0)
    first, second = trace.slices()
    assert (first.worker, first.node, first.end_us, first.rows, first.flow_out) == (1, "cell", 12.5, 6, 3)
    assert (second.direction, second.flow_in) == ("update", None)
    Session(MODEL, settings(), device)
    assert "trace" not in device.options.settings


def test_the_graph_is_the_models() -> None:
    device = LoadedNull()
    session = Session(MODEL, settings("hidden=5"), device)
    assert device.graph is session.graph
    assert fingerprint(session.graph) == fingerprint(MODEL.graph(ToyConfig(hidden=5)))
