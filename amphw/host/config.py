"""The configuration of a run: its sections, and how they are put together.

A value comes from the last of these places that has it: the default of the field, the settings that the model
recommends, a TOML file, `key=value` overrides. A configuration as TOML:

    [model]                     # fields of the model's own dataclass
    hidden = 128
    [train]
    max_active_keys = 8
    [update]                    # for every node with parameters ...
    lr = 0.05
    [update.nodes.cell]         # ... and for one of them
    optimizer = "adam"
    [device]
    workers = 2

An override names its field in full (`update.nodes.cell.lr=0.1`) or, where one section alone has a field of
that name, by the bare name (`hidden=32`).
"""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from amphw.host.devices import declared_options
from amphw.host.replicas_config import ReplicasConfig
from amphw.ir.config_fields import NONE, ConfigError, Option, check_section, did_you_mean, option, options
from amphw.ir.device import SILENCE
from amphw.ir.optimizers import OPTIMIZERS, SCHEDULES
from amphw.ir.passes import RULES

M = TypeVar("M")
_MAX_KEYS = 4096
_MAX_BYTES = 1_000_000
"""Of a TOML file; no configuration comes near it."""


@dataclass(frozen=True)
class TrainConfig:
    """How instances are pumped, and for how long."""

    epochs: int = option(20, "passes over the training set", minimum=1)
    target: float | None = option(
        None, "validation score to stop at: accuracy in 0..1, or the error of a regression model", minimum=0
    )
    patience: int = option(0, "epochs without improvement after which to stop; 0: never", minimum=0)
    seed: int = option(0, "seed of initial parameters, data order and dropout", minimum=0)
    mode: Literal["async", "sync", "pipeline"] = option(
        "async", "async: nodes update on their own; sync: one batch at a time; pipeline: a window of batches"
    )
    pipeline_depth: int = option(4, "batches in flight in pipeline mode", minimum=1, maximum=_MAX_KEYS)
    max_active_keys: int = option(16, "instances in flight while training", minimum=1, maximum=_MAX_KEYS)
    max_infer_keys: int = option(16, "instances in flight while validating", minimum=1, maximum=_MAX_KEYS)
    clip_norm: float = option(
        0.0,
        "largest L2 norm of the gradients of all parameters together, in mode sync or pipeline; 0: no limit",
        minimum=0,
    )
    average: float = option(
        0.0,
        "decay of a moving average of the parameters, which is validated, kept and predicted with, in mode "
        "sync or pipeline, such as 0.999; 0: none",
        minimum=0,
        below=1,
    )
    live_valid: int = option(
        0, "validation instances kept in flight beside training; 0: none", minimum=0, maximum=_MAX_KEYS
    )
    pump: Literal["greedy", "staleness"] = option(
        "greedy", "greedy: pump while a key is free; staleness: hold back above max_staleness"
    )
    max_staleness: float = option(4.0, "updates between a message's forward and backward pass", minimum=0)
    train_instances: int = option(0, "training instances to use; 0: all", minimum=0)
    valid_instances: int = option(0, "validation instances to use; 0: all", minimum=0)
    checkpoint_every: int = option(1, "epochs between checkpoints; 0: none", minimum=0)
    checkpoint_minutes: float = option(
        5.0, "minutes after which a checkpoint is taken within an epoch as well; 0: never", minimum=0
    )
    trace: bool = option(True, "record what ran where and when")

    def __post_init__(self) -> None:
        check_section(self, "train")
        if self.live_valid > self.max_infer_keys:
            raise ConfigError(
                f"train.live_valid is {self.live_valid}, but train.max_infer_keys, the slots that validation "
                f"has, is {self.max_infer_keys}; lower the one or raise the other."
            )
        if self.mode == "async":
            self._check_asynchronous()

    def _check_asynchronous(self) -> None:
        """Raise ConfigError for what has no meaning where every node updates on its own."""
        instead = "write --set train.mode=pipeline (or sync)"
        if self.clip_norm:
            raise ConfigError(
                f"train.clip_norm is {self.clip_norm}, the largest norm of all gradients of an update, but "
                "with train.mode=async every node updates on its own, when others have no gradients yet; "
                f"{instead}, or update.clip, which limits the gradient of each parameter."
            )
        if self.average:
            raise ConfigError(
                f"train.average is {self.average}, the decay of an average over updates of all parameters, "
                "but with train.mode=async every node updates on its own, not as often as others; "
                f"{instead}, or leave train.average out."
            )


@dataclass(frozen=True)
class UpdateConfig:
    """How a node with parameters turns its gradients into updates."""

    min_update_interval: int = option(
        32,
        "gradient rows that a node gathers before it updates",
        minimum=1,
        aliases=("min_update_frequency",),
    )
    optimizer: str = option("sgd", "rule of the update", choices=OPTIMIZERS)
    lr: float = option(0.1, "learning rate", above=0)
    momentum: float = option(0.9, "decay of the velocity, for momentum", minimum=0, below=1)
    beta1: float = option(0.9, "decay of the first moment, for adam", minimum=0, below=1)
    beta2: float = option(0.999, "decay of the second moment, for adam", minimum=0, below=1)
    eps: float = option(1e-8, "added to the denominator, for adam and adagrad", above=0)
    weight_decay: float = option(0.0, "times the parameter, added to its gradient", minimum=0)
    clip: float = option(0.0, "largest L2 norm of the gradient of a parameter; 0: no limit", minimum=0)
    reduce: Literal["sum", "mean"] = option("mean", "how the gathered rows become one gradient")
    schedule: str = option("constant", "course of the learning rate", choices=SCHEDULES)
    schedule_steps: int = option(
        1000, "updates per factor gamma (step, exponential), or until the rate is 0 (cosine)", minimum=1
    )
    schedule_gamma: float = option(0.5, "factor of step and exponential", above=0, maximum=1)
    warmup: int = option(0, "updates over which the learning rate rises from 0", minimum=0)

    def __post_init__(self) -> None:
        check_section(self, "update")


@dataclass(frozen=True)
class Scheduling:
    """How devices of any kind schedule nodes, and the CPU's own settings."""

    workers: int = option(
        help="on cpu: threads that run nodes",
        default_factory=lambda: min(2, os.cpu_count() or 1),
        minimum=1,
        maximum=1024,
    )
    frame_cap: int = option(64, "messages in a frame, at most", minimum=1, maximum=65536)
    frame_rows: int = option(
        512, "payload rows in a frame, about: a frame takes no further message once it has as many", minimum=1
    )
    placement: Literal["shared", "pinned"] = option(
        "shared", "on cpu, shared: any worker runs any node; pinned: each node has its worker"
    )
    policy: Literal["default", "fifo", "backward-first", "largest-queue"] = option(
        "default", "which waiting node a worker takes next"
    )
    min_rows: int = option(1, "rows that a node waits for while other nodes have work", minimum=1)
    gemm: Literal["auto", "own", "blas"] = option(
        "auto", "on cpu: who multiplies: own kernels, a BLAS library, or what was measured to be faster here"
    )
    place: str = option(
        "",
        "in a run on several devices: the device of some nodes, such as cell=verilator,head=cpu; for the "
        "others one is chosen",
    )
    tile: str = option(
        "",
        "layers to cut into tiles of their columns, which may then be placed apart, such as cell:2,head:4",
    )
    replicate: str = option(
        "",
        "nodes to replicate, and into how many copies, such as cell:4,head:2; they are averaged after every "
        "epoch",
    )
    replicate_rule: str = option(
        "least-loaded",
        "who serves a message; least-loaded: replicas take instances in turn; hash: by a hash of the state; "
        "random: by a hash of state, instance and train.seed",
        choices=RULES,
    )
    replicate_interval: Literal["whole", "divided"] = option(
        "whole",
        "rows that a replica gathers before it updates; whole: as many as the node would, so all replicas "
        "together update as often; divided: one n-th, so each updates as often, which costs more and learns "
        "faster",
    )
    links: str = option(
        "",
        "in a run on several devices: rate and latency of the links to simulated ones (verilator, sleep), "
        "such as a=100Mb/s+20us,b=1Gb/s",
    )
    silence: float = option(
        SILENCE,
        "in a run on several devices: seconds without a sign of life after which one of them counts as lost",
        minimum=2,
    )
    placing: Literal["heuristic", "search"] = option(
        "heuristic",
        "in a run on several devices, where nodes go that device.place does not name; heuristic: they take "
        "turns; search: as is estimated to be fastest",
    )

    def __post_init__(self) -> None:
        check_section(self, "device")
        for name in ("place", "tile", "replicate", "links"):
            if getattr(self, name).strip() == NONE:
                object.__setattr__(self, name, "")  # the class is frozen


if TYPE_CHECKING:
    DeviceConfig = Scheduling
else:
    DeviceConfig = dataclass(frozen=True)(
        type(
            "DeviceConfig",
            (*reversed(declared_options()), Scheduling),  # whose fields come first
            {
                "__doc__": "Scheduling, and what devices declare for themselves. A device ignores what is "
                "said to concern another kind.",
                "__module__": __name__,
            },
        )
    )


@dataclass(frozen=True)
class RunConfig(Generic[M]):
    """A complete, checked configuration.

    node_updates: for a node's name the update settings given for it alone; `update_for` puts them together
    with `update`, which holds for every node.
    """

    model: M
    train: TrainConfig = field(default_factory=TrainConfig)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    node_updates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    device: DeviceConfig = field(default_factory=DeviceConfig)
    replicas: ReplicasConfig = field(default_factory=ReplicasConfig)


def sections(model_config_type: type) -> dict[str, type]:
    """The dataclass of each section, by name; `config_fields.options` lists the fields of one."""
    return {
        "model": model_config_type,
        "train": TrainConfig,
        "update": UpdateConfig,
        "device": DeviceConfig,
        "replicas": ReplicasConfig,
    }


def resolve(
    model_config_type: type[M],
    defaults: Mapping[str, Any],
    toml_path: str | Path | None = None,
    overrides: Iterable[str] = (),
) -> RunConfig[M]:
    """Put a configuration together and check it.

    model_config_type: the model's dataclass, section `[model]`.
    defaults: the settings that the model recommends, nested like the TOML file.
    toml_path: a TOML file, or None.
    overrides: `key=value`; of two for the same field the later wins.

    Raises ConfigError for a key or a value that is not allowed, naming where it comes from.
    """
    draft = _Draft(model_config_type)
    draft.merge(defaults, "the model's settings")
    if toml_path is not None:
        draft.merge(_read_toml(Path(toml_path)), str(toml_path))
    for override in overrides:
        draft.override(override)
    return draft.build()


def update_for(config: RunConfig[Any], node: str) -> UpdateConfig:
    """The update settings of one node: those of `[update]`, replaced by those of `[update.nodes.NODE]`."""
    return dataclasses.replace(config.update, **config.node_updates.get(node, {}))


def check_nodes(config: RunConfig[Any], nodes: Iterable[str]) -> None:
    """Check that every `[update.nodes.NAME]` names one of `nodes`, the graph's nodes with parameters.

    Raises ConfigError otherwise: a setting for a node that does not exist would have no effect.
    """
    known = list(nodes)
    for name in config.node_updates:
        if name not in known:
            raise ConfigError(
                f"update.nodes.{name}: the model has no node {name!r} with parameters."
                f"{did_you_mean(name, known)} It has: {', '.join(known)}."
            )


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:  # a device or a pipe may never end
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ConfigError(
                f"{path}: the configuration is longer than {_MAX_BYTES} bytes, so it is none; check the path."
            )
        return tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: the configuration cannot be read ({error.strerror}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the configuration is not valid TOML ({error}).") from error


class _Draft:
    """Values gathered so far, each checked as it comes in, so that an error can name its source."""

    def __init__(self, model_config_type: type) -> None:
        self.sections = sections(model_config_type)
        self.values: dict[str, dict[str, Any]] = {name: {} for name in self.sections}
        self.nodes: dict[str, dict[str, Any]] = {}
        self.sources: dict[str, dict[str, str]] = {name: {} for name in self.sections}

    def merge(self, tree: Mapping[str, Any], source: str) -> None:
        for section, values in tree.items():
            if section not in self.sections:
                owners = [name for name, kind in self.sections.items() if section in options(kind)]
                if owners and not isinstance(values, Mapping):
                    raise ConfigError(
                        f"{source}: {section!r} stands outside its section; put it under [{owners[0]}]."
                    )
                raise ConfigError(
                    f"{source}: unknown section {section!r}.{did_you_mean(section, list(self.sections))} "
                    f"Sections: {', '.join(self.sections)}."
                )
            fields = dict(_table(values, section, source))
            nodes = fields.pop("nodes", {}) if section == "update" else {}
            stored = self._store(self.values[section], section, fields, section, source)
            self.sources[section].update(dict.fromkeys(stored, source))
            for node, settings in _table(nodes, "update.nodes", source).items():
                prefix = f"update.nodes.{node}"
                target = self.nodes.setdefault(node, {})
                self._store(target, "update", _table(settings, prefix, source), prefix, source)

    def override(self, text: str) -> None:
        source = f"--set {text}"
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise ConfigError(f"{source}: expected key=value, such as train.epochs=5.")
        section, node, name = self._locate(key, source)
        prefix = section if node is None else f"update.nodes.{node}"
        found = self._find(section, name, prefix, source)
        tree: dict[str, Any] = {name: found.parse(value)}
        self.merge({section: tree if node is None else {"nodes": {node: tree}}}, source)

    def build(self) -> RunConfig[Any]:
        built = {name: self._build_section(name) for name in self.sections}
        return RunConfig(**built, node_updates=self.nodes)

    def _build_section(self, name: str) -> Any:
        section = self.sections[name]
        for each in options(section).values():
            if each.default is MISSING and each.name not in self.values[name]:
                raise ConfigError(f"{name}.{each.name} has no value; it needs {each.allowed}.")
        try:
            return section(**self.values[name])
        except ConfigError as error:  # a condition on several fields, each of them allowed
            raise ConfigError(f"{self._origins(name, str(error))}{error}") from error
        except ValueError as error:  # from a model's own __post_init__
            raise ConfigError(f"{self._origins(name, str(error))}[{name}]: {error}") from error

    def _origins(self, section: str, complaint: str) -> str:
        """Where the values of the fields that `complaint` names come from; nothing for defaults."""
        words = set(re.findall(r"\w+", complaint))
        found = [source for field, source in self.sources[section].items() if field in words]
        return f"{' and '.join(dict.fromkeys(found))}: " if found else ""

    def _store(
        self, target: dict[str, Any], section: str, values: Mapping[str, Any], prefix: str, source: str
    ) -> Iterable[str]:
        """Check values and put them into `target` -> the names of their fields."""
        given: dict[str, str] = {}
        for name, value in values.items():
            found = self._find(section, name, prefix, source)
            if found.name in given:
                raise ConfigError(
                    f"{source}: {prefix}.{given[found.name]} and {prefix}.{name} "
                    "are the same setting; give one."
                )
            given[found.name] = name
            target[found.name] = found.check(value, f"{source}: {prefix}.{name}")
        return given

    def _find(self, section: str, name: str, prefix: str, source: str) -> Option:
        known = options(self.sections[section])
        for each in known.values():
            if name == each.name or name in each.aliases:
                return each
        raise ConfigError(
            f"{source}: unknown key {prefix}.{name}.{did_you_mean(name, list(known))} "
            f"[{section}] has: {', '.join(known) or 'no keys'}."
        )

    def _locate(self, key: str, source: str) -> tuple[str, str | None, str]:
        """The section, the node (or None) and the field that the key of an override names."""
        section, dot, rest = key.partition(".")
        if dot:
            if section not in self.sections:
                raise ConfigError(
                    f"{source}: unknown section {section!r}.{did_you_mean(section, list(self.sections))} "
                    f"Sections: {', '.join(self.sections)}."
                )
            if section == "update" and rest.startswith("nodes."):
                node, _, name = rest.removeprefix("nodes.").rpartition(".")
                if not node:
                    raise ConfigError(f"{source}: expected update.nodes.NODE.KEY=value.")
                return section, node, name
            return section, None, rest
        names = {
            name: each
            for name, kind in self.sections.items()
            for each in options(kind).values()
            if key == each.name or key in each.aliases
        }
        if len(names) == 1:
            return next(iter(names)), None, key
        if names:
            raise ConfigError(
                f"{source}: {key} is ambiguous; write one of {', '.join(f'{name}.{key}' for name in names)}."
            )
        full = {each: f"{name}.{each}" for name, kind in self.sections.items() for each in options(kind)}
        near = did_you_mean(key, full)
        raise ConfigError(
            f"{source}: no section has a key {key}.{near or ' Sections: ' + _listed(self.sections)}"
        )


def _listed(kinds: Mapping[str, type]) -> str:
    return "; ".join(f"[{name}] {', '.join(options(kind))}" for name, kind in kinds.items()) + "."


def _table(value: Any, name: str, source: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{source}: {name} is {value!r}, expected a table of settings.")
    return value
