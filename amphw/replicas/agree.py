"""Before they train, ranks make sure that they train the same: model, settings, code and data."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import amphw
from amphw.host.config import RunConfig
from amphw.host.config_toml import to_toml
from amphw.host.report import flat
from amphw.host.run_model import InstanceSet, RunModel
from amphw.host.session import graph_of
from amphw.ir.config_fields import ConfigError
from amphw.ir.serialise import fingerprint
from amphw.replicas.collectives import all_gather, all_reduce
from amphw.replicas.transport import Transport

LOOKED_AT = 32
"""Instances of each set that are compared."""


def identity(model: RunModel, cfg: RunConfig[Any]) -> dict[str, str]:
    """What has to be the same on all ranks, in words; devices may differ."""
    settings = tomllib.loads(to_toml(cfg))
    del settings["device"]
    train = cfg.train
    model.prepare(cfg.model, train.seed)
    sets = {
        "training instances": model.training(cfg.model, train.seed, 1, train.train_instances),
        "validation instances": model.validation(cfg.model, train.seed, train.valid_instances),
    }
    return {
        "model": f"{model.name} ({fingerprint(graph_of(model, cfg))})",
        "amphw": f"{amphw.__version__} (sources {_sources()})",
        **{f"setting {name}": value for name, value in flat(settings).items()},
        **{what: f"{len(found):,} ({_data(found)})" for what, found in sets.items()},
    }


def check_alike(transport: Transport, mine: Mapping[str, str]) -> None:
    """Raise ConfigError, on every rank, where one has something else than the first; both sides are named."""
    text = np.frombuffer(json.dumps(mine).encode(), np.uint8)
    sizes = np.zeros(transport.ranks, np.int64)
    sizes[transport.rank] = text.size
    all_reduce(transport, sizes)
    every = [json.loads(each.tobytes()) for each in all_gather(transport, text, sizes.tolist())]
    for rank, theirs in enumerate(every):
        if (found := difference(every[0], theirs)) is not None:
            what, first, other = found
            raise ConfigError(
                f"ranks do not train the same: {what} is {first} on rank 0, and {other} on rank {rank}"
            )


def difference(ours: Mapping[str, str], theirs: Mapping[str, str]) -> tuple[str, str, str] | None:
    """The first thing in which two identities differ, with what it is in each; None: they are the same."""
    for what in {**ours, **theirs}:
        first, other = ours.get(what, "nothing"), theirs.get(what, "nothing")
        if first != other:
            return what, first, other
    return None


def _sources() -> str:
    """A hash of the package's Python files."""
    found = hashlib.sha256()
    root = Path(amphw.__file__).parent
    for path in sorted(root.rglob("*.py")):
        found.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:10]


def _data(instances: InstanceSet) -> str:
    """A hash of some of the instances, evenly spread over the set."""
    found, count = hashlib.sha256(), len(instances)
    for k in range(min(count, LOOKED_AT)):
        each = instances[k * count // min(count, LOOKED_AT)]
        found.update(repr(sorted(each.attrs.items())).encode())
        for arrays in (each.tables, each.data):
            for name in sorted(arrays):
                found.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()[:10]
