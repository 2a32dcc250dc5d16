"""`amphw.estimated` and `amphw.placed`: from a model and what is said of devices to an estimate."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from amphw.frontend import Spec
from amphw.host.config import RunConfig
from amphw.library.data import Data
from amphw.library.estimating import methods
from amphw.library.estimating.network import network_of, timed_like
from amphw.library.estimating.proposal import INSTANCES, propose
from amphw.library.estimating.results import Estimate, Placement
from amphw.library.estimating.said import Said, SaidError, default, keyword, stated
from amphw.library.function_model import FunctionModel
from amphw.library.running import one_blas_thread
from amphw.library.train import config_of, model_of
from amphw.models import Model


def estimated(
    model: Any,
    data: Data | None = None,
    *,
    spec: Spec | None = None,
    flops: str | None = None,
    utilisation: float | None = None,
    lanes: int | None = None,
    clock: str | None = None,
    formats: str | None = None,
    network: str | Path | None = None,
    like: str | None = None,
    devices: int | None = None,
    memory: str | None = None,
    link: str | None = None,
    latency: str | None = None,
    credits: int | None = None,
    keys: int | None = None,
    replicas: int | None = None,
    instances: int = INSTANCES,
    events: bool = False,
    compare: bool = False,
    seed: int | None = None,
    **settings: Any,
) -> Estimate:
    """Estimate throughput, traffic and memory of a model on a network of devices, without training it.

    model, data, spec, seed, settings: as `amphw.train` takes them; of the data the first `instances` are
    counted on. How fast a device is, one of: flops, a rate such as "1TFLOPS", with its utilisation, 0 to 1;
    lanes of a circuit, with its clock and formats; network, a file that lists devices and links; like, a
    device that is here, which is timed (else "cpu"). devices: how many; else one for each node with
    parameters. memory: of each, such as "8GB". link, latency: between two, such as "10Gb/s" and "1us"; else
    no limit and none. credits: messages under way on a link. keys: instances in flight; else
    `max_active_keys`. replicas: of each node with parameters. events: played through in simulated time, too,
    which `Estimate.report` needs. compare: with what doubling one thing buys, and with other placements.

    Raises SaidError for what does not go together, AmphwError for a text that is no quantity and a device
    that is too small, and what `amphw.train` raises for model, data and settings.
    """
    said = Said(
        *(flops, utilisation, lanes, clock, formats, None if network is None else Path(network), like),
        *(devices, memory, link, latency, credits),
    )
    made, cfg = _ready(model, data, spec, "cpu", seed, settings)
    return estimate_of(made, cfg, said, keys, replicas, instances, events, compare)


def placed(
    model: Any,
    data: Data | None = None,
    *,
    device: str,
    spec: Spec | None = None,
    instances: int = INSTANCES,
    search: bool = True,
    limits: Mapping[str, int] | None = None,
    seed: int | None = None,
    **settings: Any,
) -> Placement:
    """Where a model's nodes go on several devices, and how fast that would be; takes some seconds.

    model, data, spec, seed, settings: as `amphw.train` takes them. device: several, as in
    "cpu,fixed:q4.12". instances: that are counted and timed on. search: whether to look for more than turns
    give. limits: the most nodes of a device, by its label.

    Raises DeviceError for one device alone, AmphwError for names that there are none of, and what
    `amphw.train` raises for model, data and settings.
    """
    made, cfg = _ready(model, data, spec, device, seed, settings)
    return placement_of(made, cfg, device, instances, search, limits)


def estimate_of(
    made: Model[Any],
    cfg: RunConfig[Any],
    said: Said,
    keys: int | None,
    replicas: int | None,
    instances: int,
    events: bool,
    compare: bool,
) -> Estimate:
    """Of a model with its settings; see `estimated`."""
    by_default = said.by_default(keyword)
    like = "cpu" if by_default else said.like
    timed = None if like is None else partial(timed_like, made, cfg, like, instances, _tell, _silent, keyword)
    with one_blas_thread():
        network = network_of(said, None, cfg.device.policy, timed, keyword)
        told = stated(said.given() | _given(keys=keys, replicas=replicas))
        told |= {"like": f"like {default(keyword)}"} if by_default else {}
        asked = methods.Asked(made, cfg, network, keys, replicas, instances, told)
        return Estimate(methods.on_network(asked, events=events, watch=events, compare=compare))


def placement_of(
    made: Model[Any],
    cfg: RunConfig[Any],
    device: str,
    instances: int = INSTANCES,
    search: bool = True,
    limits: Mapping[str, int] | None = None,
) -> Placement:
    """Of a model with its settings; see `placed`."""
    with one_blas_thread():
        return Placement(propose(made, cfg, device, instances, search, limits, tell=_tell, begins=_silent))


def said_of(given: Mapping[str, Any]) -> Said:
    """What keyword arguments say of devices and links. Raises SaidError for a name that there is none of."""
    values = dict(given)
    if values.get("network") is not None:
        values["listed"] = Path(values.pop("network"))
    known = [field.name for field in fields(Said)]
    for name in given:
        if name == "listed" or name not in [*known, "network"]:
            names = ", ".join("network" if each == "listed" else each for each in known)
            raise SaidError(f"nothing is called {name}; devices and links are said by {names}", name)
    return Said(**values)


def with_data(made: Model[Any], data: Data | None, cfg: RunConfig[Any]) -> Model[Any]:
    """The model with these instances to count on; without any, as it is."""
    if data is None:
        return made
    if not isinstance(made, FunctionModel):
        from amphw.data.cache import DataError

        raise DataError(f"the model {made.name} has data of its own; leave data out")
    found = FunctionModel(made.compiled(cfg.model))
    found.give(data, None, cfg)
    return found


def _ready(
    model: Any, data: Data | None, spec: Spec | None, device: str, seed: int | None, settings: dict[str, Any]
) -> tuple[Model[Any], RunConfig[Any]]:
    made = model_of(model, data, spec)
    cfg = config_of(made, device, seed, settings)
    return with_data(made, data, cfg), cfg


def _given(**values: int | None) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _tell(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=2)


def _silent(sentence: str) -> None:
    """That something takes seconds is no news in a program."""
