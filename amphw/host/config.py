"""The configuration of a run, put together of its sections.

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
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from amphw.host.sections.device import DeviceConfig
from amphw.host.sections.replicas import ReplicasConfig
from amphw.host.sections.train import TrainConfig
from amphw.host.sections.update import UpdateConfig
from amphw.ir.config_fields import ConfigError, Option, did_you_mean, options

M = TypeVar("M")
_MAX_BYTES = 1_000_000
"""Of a TOML file; no configuration comes near it."""


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
    given: Mapping[str, Any] = MappingProxyType({}),
) -> RunConfig[M]:
    """Put a configuration together and check it.

    model_config_type: the model's dataclass, section `[model]`.
    defaults: the settings that the model recommends, nested like the TOML file.
    toml_path: a TOML file, or None.
    overrides: `key=value`; of two for the same field the later wins.
    given: the same with values of Python; that of a section's name may be a dict, nested like its table.

    Raises ConfigError for a key or a value that is not allowed, naming where it comes from.
    """
    draft = _Draft(model_config_type)
    draft.merge(defaults, "the model's settings")
    if toml_path is not None:
        draft.merge(_read_toml(Path(toml_path)), str(toml_path))
    for override in overrides:
        draft.override(override)
    for key, value in given.items():
        draft.give(key, value)
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
        self._set(key, lambda option: option.parse(value), source)

    def give(self, key: str, value: Any) -> None:
        source = f"the setting {key}"
        if key in self.sections and isinstance(value, Mapping):
            self.merge({key: value}, source)
        else:
            self._set(key, lambda option: value, source)

    def _set(self, key: str, value: Callable[[Option], Any], source: str) -> None:
        """value: of the field that the key names."""
        section, node, name = self._locate(key, source)
        prefix = section if node is None else f"update.nodes.{node}"
        tree: dict[str, Any] = {name: value(self._find(section, name, prefix, source))}
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
        if key.lower() in _ELSEWHERE:
            raise ConfigError(f"{source}: there is no {key} here; {_ELSEWHERE[key.lower()]}.")
        full = {each: f"{name}.{each}" for name, kind in self.sections.items() for each in options(kind)}
        near = did_you_mean(key, full)
        raise ConfigError(
            f"{source}: no section has a key {key}.{near or ' Sections: ' + _listed(self.sections)}"
        )


_ROWS = (
    "instances stream through the network one by one, and a node updates after so many rows of gradients: "
    "min_update_interval=32 (update.min_update_interval). How many are in flight is max_active_keys"
)
_RATE = "it is lr=0.01 (update.lr)"
_EPOCHS = "it is epochs=10 (train.epochs)"
_CLIP = "it is clip_norm=1.0 (train.clip_norm), or clip (update.clip), by which nodes clip for themselves"
_ELSEWHERE = {
    **dict.fromkeys(
        ("batch_size", "batchsize", "batch", "bs", "minibatch", "accumulate_grad_batches"), _ROWS
    ),
    **dict.fromkeys(("learning_rate", "learningrate", "step_size", "alpha", "eta"), _RATE),
    **dict.fromkeys(("num_epochs", "n_epochs", "max_epochs", "num_train_epochs"), _EPOCHS),
    **dict.fromkeys(("grad_clip", "max_norm", "max_grad_norm", "gradient_clip_val"), _CLIP),
    **dict.fromkeys(("optim", "optimiser"), 'it is optimizer="adam" (update.optimizer)'),
    **dict.fromkeys(("num_workers", "n_jobs", "threads"), "it is workers=2 (device.workers)"),
    "shuffle": "what has a length is in a new order in every epoch, drawn from seed and epoch",
    "early_stopping": "it is patience=3 (train.patience)",
    "verbose": "from Python it is progress=True",
}
"""What others call settings, and what they are here."""


def _listed(kinds: Mapping[str, type]) -> str:
    return "; ".join(f"[{name}] {', '.join(options(kind))}" for name, kind in kinds.items()) + "."


def _table(value: Any, name: str, source: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{source}: {name} is {value!r}, expected a table of settings.")
    return value
