"""The network that an estimate is asked for, from what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amphw.library.estimating.proposal import timed
from amphw.library.estimating.said import Called, Said, named, option
from amphw.library.running import opened

if TYPE_CHECKING:
    from amphw.estimate.network.devices import Circuit
    from amphw.estimate.network.measured import LikeDevice
    from amphw.estimate.network.topology import Network
    from amphw.estimate.outcome import Origin
    from amphw.estimate.papers import Assumed
    from amphw.host.config import RunConfig


def network_of(
    said: Said,
    assumed: Assumed | None,
    policy: str,
    like: Callable[[], LikeDevice] | None,
    called: Called = option,
) -> Network:
    """assumed: a paper's, for what is not given. policy: of the model's run. like: times a device that is
    here. called: how errors call what is said. Raises AmphwError for a text that is no quantity."""
    from amphw.estimate.network.file import read_network
    from amphw.estimate.network.topology import Network

    name = named(called)
    bandwidth = given(name("link"), said.link, "bits a second")
    latency = given(name("latency"), said.latency, "seconds") or 0.0
    linked = Network(1.0, bandwidth=bandwidth, latency=latency, credits=said.credits or 0, policy=policy)
    if said.listed is not None:
        return read_network(said.listed, lambda lanes, clock: circuit(said, lanes, clock), linked)
    memory = given(name("memory"), said.memory, "bytes")
    alike = replace(linked, devices=said.devices, memory=memory)
    if said.lanes is not None:
        clock = given(name("clock"), said.clock, "cycles a second")
        return replace(alike, flops=None, circuit=circuit(said, said.lanes, clock))
    if like is not None:
        return replace(alike, flops=None, another=like())
    use = said.utilisation if said.utilisation is not None else assumed.use if assumed else 1.0
    flops = given(name("flops"), said.flops, "operations a second")
    return replace(alike, flops=flops or (assumed.flops if assumed else 0.0), use=use)


def circuit(said: Said, lanes: int, clock: float | None) -> Circuit:
    from amphw.estimate.network.devices import Circuit
    from amphw.rtl.build.boards import assumed
    from amphw.rtl.numbers.formats import DEFAULT, Formats
    from amphw.rtl.timing.circuit import Circuits

    return Circuit(lanes, clock or assumed().clock_hz, Circuits(Formats.parse(said.formats or DEFAULT)))


def circuit_origins(said: Mapping[str, str]) -> dict[str, Origin]:
    """What is known of circuits, and how. said: option by the name of what it states."""
    from amphw.estimate.outcome import Origin
    from amphw.rtl.numbers.formats import DEFAULT

    return {
        "lanes": Origin("stated", said.get("lanes") or said["listed"]),
        "cycles": Origin(
            "counted",
            "programs of engines and controller; benchmarks/circuit_cycles.py compares them",
        ),
        "resources": Origin(
            "synthesised", "a line through builds of list reduction on ECP5 by Yosys, without momentum"
        ),
        "formats": Origin("stated", said["formats"]) if "formats" in said else Origin("assumed", DEFAULT),
        "clock": _clock_origin(said),
    }


def _clock_origin(said: Mapping[str, str]) -> Origin:
    from amphw.estimate.outcome import Origin
    from amphw.rtl.build.boards import assumed

    if "clock" in said:
        return Origin("stated", said["clock"])
    how = f"{assumed().clock_hz / 1e6:.4g} MHz, of large circuits on the {assumed().name}"
    if "listed" in said:
        return Origin("stated", f"{said['listed']}, and where that says none: {how}")
    return Origin("assumed", how)


def given(option: str, text: str | None, of: str) -> float | None:
    """The quantity; an error says which option it is about."""
    from amphw.ir.errors import AmphwError
    from amphw.ir.units import quantity

    try:
        return None if text is None else quantity(text, of)
    except AmphwError as error:
        raise AmphwError(f"{option}: {error}") from None


def timed_like(
    found: Any,
    cfg: RunConfig[Any],
    device: str,
    instances: int,
    tell: Callable[[str], None],
    begins: Callable[[str], None],
    called: Called = option,
) -> LikeDevice:
    """The model's nodes with parameters, timed on a device that is here: frames of a worker for the `cpu`, of
    the device alone for another, as `amphw place` does.

    tell: takes a sentence that its user should know; begins: what takes long, before. called: as for
    `network_of`. Raises AmphwError for a device that refuses a node.
    """
    from amphw.engine.lowering.placing import HOST
    from amphw.estimate.network.assemble import facts, placeable
    from amphw.estimate.network.measured import LikeDevice
    from amphw.host.session import graph_of
    from amphw.ir.errors import AmphwError

    graph = graph_of(found, cfg)
    nodes = placeable(graph)
    made: Any = opened(f"{HOST},{device}" if device != HOST else HOST, tell)
    parts = made.parts if device != HOST else {}
    for label, why in getattr(made, "absent", {}).items():
        raise AmphwError(f"{called('like')} {device}: {label} is not there: {why}")
    model, _ = timed(
        found, cfg, graph, parts, facts(parts, {}, {}), nodes, instances, workers=1, begins=begins
    )
    label = next(iter(parts), HOST)
    for name in nodes:
        if (name, label) in model.refused:
            raise AmphwError(f"{device} refuses node '{name}': {model.refused[name, label]}")
    seconds = {name: model.seconds[name, label].busy for name in nodes}
    done = {n: model.work[n].forward + model.work[n].backward + model.work[n].update for n in nodes}
    peak = max((done[name] / taken for name, taken in seconds.items() if taken > 0), default=0.0)
    if not peak:
        raise AmphwError(f"{called('like')} {device}: no node takes time there; name a device that computes")
    return LikeDevice(device, seconds, peak)
