"""Configurations are put together in layers, checked, and refused with a message that says what to write."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from amphw.host.config import (
    DeviceConfig,
    RunConfig,
    TrainConfig,
    UpdateConfig,
    check_nodes,
    resolve,
    update_for,
)
from amphw.ir.config_fields import ConfigError, option, options


@dataclass(frozen=True)
class Model:
    """A model's section, with a field of every type and one (`seed`) that [train] has too."""

    hidden: int = option(128, "width of the recurrent layer", minimum=1)
    sizes: tuple[int, ...] = option((64, 32), minimum=1)
    dropout: float = 0.0
    cell: Literal["lstm", "gru"] = "lstm"
    name: str = "plain"
    tied: bool = False
    bound: int | None = None
    seed: int = 0


def settled(*overrides: str, toml: str | None = None, path: Path | None = None) -> RunConfig[Model]:
    """A configuration without settings recommended by the model; `toml` is written to `path`."""
    if toml is not None:
        assert path is not None
        path.write_text(toml, encoding="utf-8")
    return resolve(Model, {}, path if toml is not None else None, list(overrides))


def message(call: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        call(*arguments, **named)
    return str(caught.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.toml"


def test_defaults() -> None:
    config = settled()
    assert config == RunConfig(Model(), TrainConfig(), UpdateConfig(), {}, DeviceConfig())
    assert config.train == TrainConfig(
        epochs=20,
        target=None,
        patience=0,
        seed=0,
        mode="async",
        pipeline_depth=4,
        max_active_keys=16,
        max_infer_keys=16,
        clip_norm=0.0,
        average=0.0,
        live_valid=0,
        pump="greedy",
        max_staleness=4.0,
        train_instances=0,
        valid_instances=0,
        checkpoint_every=1,
        trace=True,
    )
    assert config.device == DeviceConfig(
        workers=min(2, os.cpu_count() or 1),
        frame_cap=64,
        frame_rows=512,
        placement="shared",
        policy="default",
        min_rows=1,
        depth=3,
        memory=0,
    )


def test_later_layers_win(path: Path) -> None:
    path.write_text("[train]\nepochs = 3\nseed = 3\n[model]\nhidden = 3\n", encoding="utf-8")
    recommended = {"train": {"epochs": 2, "seed": 2, "patience": 2}, "model": {"hidden": 2, "sizes": [2]}}
    config = resolve(Model, recommended, path, ["train.epochs=4", "train.epochs=5"])
    assert (config.train.epochs, config.train.seed, config.train.patience) == (5, 3, 2)
    assert (config.model.hidden, config.model.sizes) == (3, (2,))


def test_node_settings_are_laid_over_the_common_ones(path: Path) -> None:
    toml = '[update]\nlr = 0.5\n[update.nodes.cell]\noptimizer = "adam"\n[update.nodes."enc.out"]\nlr = 2\n'
    config = settled("update.nodes.cell.clip=1", "update.nodes.enc.out.clip=3", toml=toml, path=path)
    assert update_for(config, "cell") == UpdateConfig(lr=0.5, optimizer="adam", clip=1.0)
    assert update_for(config, "enc.out") == UpdateConfig(lr=2.0, clip=3.0)
    assert update_for(config, "head") == config.update == UpdateConfig(lr=0.5)


def test_the_interval_has_another_name(path: Path) -> None:
    assert settled("min_update_frequency=7").update.min_update_interval == 7
    config = settled(toml="[update.nodes.cell]\nmin_update_frequency = 9\n", path=path)
    assert update_for(config, "cell").min_update_interval == 9
    # In a later layer, either name replaces the value, whichever name it was given by.
    assert settled("min_update_frequency=7", "min_update_interval=8").update.min_update_interval == 8


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("hidden=32", 32),
        ("model.hidden = 32", 32),
        ("sizes=[7]", (7,)),
        ("sizes=[]", ()),
        ("dropout=.5", 0.5),
        ("dropout=1e-3", 0.001),
        ("dropout=1", 1.0),
        ("cell=gru", "gru"),
        ('cell="gru"', "gru"),
        ("name=a b=c", "a b=c"),
        ("name=5", "5"),
        ('name="x # y"', "x # y"),
        ("tied=true", True),
        ("bound=3", 3),
        ("bound=none", None),
    ],
)
def test_override_values(override: str, value: object) -> None:
    field = override.partition("=")[0].strip().removeprefix("model.")
    found = getattr(settled("bound=5", override).model, field)
    assert found == value
    assert type(found) is type(value)


def test_bare_names_reach_every_section() -> None:
    config = settled("epochs=2", "lr=0.25", "workers=3", "hidden=4")
    assert (config.train.epochs, config.update.lr, config.device.workers, config.model.hidden) == (
        2,
        0.25,
        3,
        4,
    )


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("epochs=0", "train.epochs is 0, expected an integer of 1 or more."),
        ("epochs=ten", "train.epochs is 'ten', expected an integer of 1 or more."),
        ("epochs=1.5", "train.epochs is 1.5, expected an integer of 1 or more."),
        ("epochs=true", "train.epochs is true, expected an integer of 1 or more."),
        ("epochs=", "train.epochs is '', expected an integer of 1 or more."),
        ("max_active_keys=4097", "train.max_active_keys is 4097, expected an integer from 1 to 4096."),
        ("max_active_keys=0", "train.max_active_keys is 0, expected an integer from 1 to 4096."),
        ("mode=asynch", "train.mode is 'asynch', expected one of async, sync, pipeline."),
        ("trace=yes", "train.trace is 'yes', expected true or false."),
        ("target=-1", 'train.target is -1, expected a number of 0 or more, or "none".'),
        ("lr=0", "update.lr is 0, expected a number above 0."),
        ("lr=nan", "update.lr is nan, expected a number above 0."),
        ("lr=inf", "update.lr is inf, expected a number above 0."),
        ("momentum=1", "update.momentum is 1, expected a number of 0 or more and below 1."),
        ("schedule_gamma=0", "update.schedule_gamma is 0, expected a number above 0 and of at most 1."),
        ("update.nodes.cell.lr=-1", "update.nodes.cell.lr is -1, expected a number above 0."),
        ("clip_norm=-1", "train.clip_norm is -1, expected a number of 0 or more."),
        ("average=1", "train.average is 1, expected a number of 0 or more and below 1."),
        ("sizes=3", "model.sizes is 3, expected a list of integers, each of 1 or more."),
        ("sizes=[3,0]", "model.sizes is [3, 0], expected a list of integers, each of 1 or more."),
        ("tied=1", "model.tied is 1, expected true or false."),
        ("cell=3", "model.cell is 3, expected one of lstm, gru."),
        ("bound=x", "model.bound is 'x', expected an integer, or \"none\"."),
        (f"lr=1{'0' * 400}", f"update.lr is 1{'0' * 400}, expected a number above 0."),
    ],
)
def test_value_not_allowed(override: str, complaint: str) -> None:
    assert message(settled, override) == f"--set {override}: {complaint}"


def test_live_validation_has_no_more_keys_than_there_are_infer_slots() -> None:
    assert settled("live_valid=4", "max_infer_keys=4").train.live_valid == 4
    assert message(settled, "live_valid=5", "max_infer_keys=4") == (
        "--set live_valid=5 and --set max_infer_keys=4: "
        "train.live_valid is 5, but train.max_infer_keys, the slots that validation has, is 4; "
        "lower the one or raise the other."
    )


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        (
            "clip_norm=2",
            "train.clip_norm is 2.0, the largest norm of all gradients of an update, but with "
            "train.mode=async every node updates on its own, when others have no gradients yet; write --set "
            "train.mode=pipeline (or sync), or update.clip, which limits the gradient of each parameter.",
        ),
        (
            "average=0.999",
            "train.average is 0.999, the decay of an average over updates of all parameters, but with "
            "train.mode=async every node updates on its own, not as often as others; write --set "
            "train.mode=pipeline (or sync), or leave train.average out.",
        ),
    ],
)
def test_what_needs_updates_by_the_controller(override: str, complaint: str) -> None:
    assert message(settled, override) == f"--set {override}: {complaint}"
    assert message(settled, override, "mode=async") == (f"--set {override} and --set mode=async: {complaint}")
    for mode in ("sync", "pipeline"):
        assert settled(f"mode={mode}", override).train.mode == mode


MODEL_KEYS = "hidden, sizes, dropout, cell, name, tied, bound, seed"
TRAIN_KEYS = (
    "epochs, target, patience, seed, mode, pipeline_depth, max_active_keys, max_infer_keys, clip_norm, "
    "average, live_valid, pump, max_staleness, train_instances, valid_instances, checkpoint_every, "
    "checkpoint_minutes, trace"
)
UPDATE_KEYS = (
    "min_update_interval, optimizer, lr, momentum, beta1, beta2, eps, weight_decay, clip, reduce, "
    "schedule, schedule_steps, schedule_gamma, warmup"
)

DEVICE_KEYS = (
    "workers, frame_cap, frame_rows, placement, policy, min_rows, gemm, precision, place, tile, "
    "replicate, replicate_every, replicate_rule, replicate_interval, links, silence, placing, depth, memory, "
    "clock, lanes, strict"
)


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("train.epoch=3", f"unknown key train.epoch. Did you mean epochs? [train] has: {TRAIN_KEYS}."),
        ("train.a.b=3", f"unknown key train.a.b. [train] has: {TRAIN_KEYS}."),
        (
            "update.nodes.cell.optimiser=adam",
            f"unknown key update.nodes.cell.optimiser. Did you mean optimizer? [update] has: {UPDATE_KEYS}.",
        ),
        ("update.nodes=3", f"unknown key update.nodes. [update] has: {UPDATE_KEYS}."),
        ("update.nodes.cell=3", "expected update.nodes.NODE.KEY=value."),
        (
            "trian.epochs=3",
            "unknown section 'trian'. Did you mean train? Sections: model, train, update, device, replicas.",
        ),
        ("seed=3", "seed is ambiguous; write one of model.seed, train.seed."),
        ("epochs", "expected key=value, such as train.epochs=5."),
        ("=5", "expected key=value, such as train.epochs=5."),
    ],
)
def test_key_not_known(override: str, complaint: str) -> None:
    assert message(settled, override) == f"--set {override}: {complaint}"


def test_bare_key_not_known() -> None:
    assert message(settled, "epoch=3") == (
        "--set epoch=3: no section has a key epoch. Did you mean train.epochs?"
    )
    assert message(settled, "zzz=3") == (
        f"--set zzz=3: no section has a key zzz. Sections: [model] {MODEL_KEYS}; [train] {TRAIN_KEYS}; "
        f"[update] {UPDATE_KEYS}; [device] {DEVICE_KEYS}; "
        "[replicas] strategy, servers, machine_ranks, average_dense, average_sparse, sparse_from, "
        "every, every_updates, wire, outer_lr, outer_momentum, partitions, bandwidth, staleness, "
        "accumulate, apply."
    )


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ("[train]\nepochs = 0\n", "train.epochs is 0, expected an integer of 1 or more."),
        ('[update]\nlr = "fast"\n', "update.lr is 'fast', expected a number above 0."),
        ("[update.nodes.cell]\nlr = 0.0\n", "update.nodes.cell.lr is 0.0, expected a number above 0."),
        ("[model]\nhiden = 3\n", f"unknown key model.hiden. Did you mean hidden? [model] has: {MODEL_KEYS}."),
        (
            "[modle]\nhidden = 3\n",
            "unknown section 'modle'. Did you mean model? Sections: model, train, update, device, replicas.",
        ),
        ("epochs = 3\n", "'epochs' stands outside its section; put it under [train]."),
        ("train = 3\n", "train is 3, expected a table of settings."),
        ("[update]\nnodes = 3\n", "update.nodes is 3, expected a table of settings."),
        ("[update.nodes]\ncell = 3\n", "update.nodes.cell is 3, expected a table of settings."),
        (
            "[update]\nmin_update_interval = 3\nmin_update_frequency = 4\n",
            "update.min_update_interval and update.min_update_frequency are the same setting; give one.",
        ),
        (
            "[train\n",
            "the configuration is not valid TOML "
            "(Expected ']' at the end of a table declaration (at line 1, column 7)).",
        ),
    ],
)
def test_file_not_usable(path: Path, toml: str, complaint: str) -> None:
    assert message(settled, toml=toml, path=path) == f"{path}: {complaint}"


def test_file_not_there(path: Path) -> None:
    assert message(resolve, Model, {}, path) == (
        f"{path}: the configuration cannot be read (No such file or directory)."
    )


def test_settings_of_the_model_are_checked_too() -> None:
    assert message(resolve, Model, {"train": {"epochs": 0}}) == (
        "the model's settings: train.epochs is 0, expected an integer of 1 or more."
    )


def test_sections_check_themselves() -> None:
    assert message(TrainConfig, epochs=0) == "train.epochs is 0, expected an integer of 1 or more."
    assert (
        message(dataclasses.replace, UpdateConfig(), lr=-1) == "update.lr is -1, expected a number above 0."
    )
    assert message(DeviceConfig, workers=0) == "device.workers is 0, expected an integer from 1 to 1024."
    assert message(DeviceConfig, depth=0) == "device.depth is 0, expected an integer from 1 to 64."
    assert message(DeviceConfig, memory=-1) == "device.memory is -1, expected an integer of 0 or more."


def test_nodes_that_the_model_does_not_have() -> None:
    config = settled("update.nodes.cel.lr=1")
    check_nodes(config, ["cel"])
    assert message(check_nodes, config, ["embed", "cell"]) == (
        "update.nodes.cel: the model has no node 'cel' with parameters. Did you mean cell? "
        "It has: embed, cell."
    )


@dataclass(frozen=True)
class Demanding:
    """A model with a field that must be given, and a condition on two fields."""

    width: int = option(help="width of a layer", minimum=1)
    heads: int = 1

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")


def test_what_a_model_demands() -> None:
    assert resolve(Demanding, {}, None, ["width=6", "heads=3"]).model == Demanding(6, 3)
    assert message(resolve, Demanding, {}) == "model.width has no value; it needs an integer of 1 or more."
    assert message(resolve, Demanding, {"model": {"width": 4, "heads": 3}}) == (
        "the model's settings: [model]: width 4 is not a multiple of heads 3"
    )
    assert message(resolve, Demanding, {"model": {"width": 4}}, None, ["heads=1", "heads=3"]) == (
        "the model's settings and --set heads=3: [model]: width 4 is not a multiple of heads 3"
    )


@dataclass(frozen=True)
class Unusable:
    table: dict[str, int] = dataclasses.field(default_factory=dict)


def test_model_types_that_cannot_be_configured() -> None:
    with pytest.raises(TypeError) as caught:
        resolve(Unusable, {})
    assert str(caught.value) == (
        "Unusable.table has type dict[str, int]; a configuration holds int, float, bool, str, Literal, "
        "a tuple of one of these (tuple[int, ...]), and each of them or None"
    )
    with pytest.raises(TypeError, match="^int is not a dataclass, so its fields cannot be configured$"):
        resolve(int, {})


def test_every_field_has_a_help_text() -> None:
    for kind in (TrainConfig, UpdateConfig, DeviceConfig):
        assert [name for name, each in options(kind).items() if not each.help] == []
    hidden = options(Model)["hidden"]
    assert (hidden.help, hidden.default, hidden.allowed) == (
        "width of the recurrent layer",
        128,
        "an integer of 1 or more",
    )
