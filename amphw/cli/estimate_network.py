"""The network that the options of `amphw estimate` describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from amphw.cli.output import remarks

if TYPE_CHECKING:
    from amphw.estimate.network.devices import Circuit
    from amphw.estimate.network.measured import Measured
    from amphw.estimate.network.topology import Network
    from amphw.estimate.outcome import Origin
    from amphw.estimate.papers import Assumed
    from amphw.host.config import RunConfig


DEFAULT = "cpu, the default without --flops, --lanes, --like and --network"


@dataclass(frozen=True)
class Options:
    """As they were written; None: not given."""

    flops: str | None
    lanes: int | None
    clock: str | None
    formats: str | None
    listed: Path | None
    like: str | None
    devices: int | None
    link: str | None
    latency: str | None
    credits: int | None
    memory: str | None
    utilisation: float | None
    by_default: bool = False  # `like` was not written

    @property
    def said(self) -> dict[str, str]:
        """Option by the name of what it states."""
        return {
            name: f"--{'network' if name == 'listed' else name} {value}"
            for name, value in vars(self).items()
            if value is not None and name != "by_default"
        } | ({"like": f"--like {DEFAULT}"} if self.by_default else {})

    def checked(self, known: bool, timed: bool) -> Options:
        """With --like cpu where nothing says how fast devices are. known: a rate is known without them.
        timed: devices may be like one that is timed. Raises typer.BadParameter for options that say
        something twice, or too little."""
        fast = [f"--{n}" for n in ("flops", "lanes", "like") if getattr(self, n) is not None]
        if self.listed is not None:
            fast += [f"--{n}" for n in ("devices", "memory", "utilisation") if getattr(self, n) is not None]
            if fast:
                raise typer.BadParameter(
                    f"{fast[0]} is for devices that are alike; --network lists them", param_hint=fast[0]
                )
        elif len(fast) > 1:
            raise typer.BadParameter(
                f"a device has either {' or '.join(fast)}; --network lists several", param_hint=fast[1]
            )
        elif not fast and not known and not timed:
            raise typer.BadParameter("say how fast a device is, as in --flops 1TFLOPS", param_hint="--flops")
        of_circuits = [f"--{n}" for n in ("clock", "formats") if getattr(self, n) is not None]
        if self.listed is not None:
            of_circuits = [option for option in of_circuits if option == "--clock"]  # which the file says
        if self.lanes is None and of_circuits:
            raise typer.BadParameter(f"{of_circuits[0]} is for --lanes", param_hint=of_circuits[0])
        if self.utilisation is not None and self.flops is None and not known:
            said = fast[0] if fast else "--like"
            raise typer.BadParameter(
                f"--utilisation is for --flops: {said} has times as they are", param_hint="--utilisation"
            )
        if fast or known or self.listed is not None:
            return self
        remarks().print(f"amphw: devices are taken to be like {DEFAULT}")
        return replace(self, like="cpu", by_default=True)


FORMATS = "q4.12"

Timed = Callable[[str], "Measured"]
"""Times the model's nodes on a device that is here, by its name."""


def network_of(options: Options, assumed: Assumed | None, policy: str, timed: Timed) -> Network:
    """assumed: a paper's, for what is not given. policy: of the model's run. timed: for --like."""
    from amphw.estimate.network.file import read_network
    from amphw.estimate.network.topology import Network

    bandwidth = given("--link", options.link, "bits a second")
    latency = given("--latency", options.latency, "seconds") or 0.0
    links = Network(1.0, bandwidth=bandwidth, latency=latency, credits=options.credits or 0, policy=policy)
    if options.listed is not None:
        return read_network(options.listed, lambda lanes, clock: circuit(options, lanes, clock), links)
    memory = given("--memory", options.memory, "bytes")
    alike = replace(links, devices=options.devices, memory=memory)
    if options.lanes is not None:
        clock = given("--clock", options.clock, "cycles a second")
        return replace(alike, flops=None, circuit=circuit(options, options.lanes, clock))
    if options.like is not None:
        return replace(alike, flops=None, another=timed(options.like))
    use = options.utilisation if options.utilisation is not None else assumed.use if assumed else 1.0
    flops = given("--flops", options.flops, "operations a second")
    return replace(alike, flops=flops or (assumed.flops if assumed else 0.0), use=use)


def circuit(options: Options, lanes: int, clock: float | None) -> Circuit:
    from amphw.estimate.network.devices import Circuit
    from amphw.rtl.build.boards import assumed
    from amphw.rtl.numbers.formats import Formats
    from amphw.rtl.timing.circuit import Circuits

    return Circuit(lanes, clock or assumed().reached_hz, Circuits(Formats.parse(options.formats or FORMATS)))


def circuit_origins(said: Mapping[str, str]) -> dict[str, Origin]:
    """What is known of circuits, and how. said: see `Options`."""
    from amphw.estimate.outcome import Origin
    from amphw.rtl.build.boards import assumed

    found = {
        "lanes": Origin("stated", said.get("lanes") or said["listed"]),
        "cycles": Origin(
            "counted",
            "programs of engines and controller; benchmarks/circuit_cycles.py compares them",
        ),
        "resources": Origin(
            "synthesised", "a line through builds of list reduction on ECP5 by Yosys, without momentum"
        ),
        "formats": Origin("stated", said["formats"]) if "formats" in said else Origin("assumed", FORMATS),
    }
    reached = f"{assumed().clock.reached_mhz:g} MHz"
    placed = f"{reached}: nextpnr on an ECP5-85F, a device of 4 lanes; more lanes taken as alike"
    found["clock"] = Origin("stated", said["clock"]) if "clock" in said else Origin("synthesised", placed)
    if "listed" in said:
        found["clock"] = Origin("stated", f"{said['listed']}, and where that says none: {placed}")
    return found


def given(option: str, text: str | None, of: str) -> float | None:
    """The quantity; an error says which option it is about."""
    from amphw.ir.errors import AmphwError
    from amphw.ir.units import quantity

    try:
        return None if text is None else quantity(text, of)
    except AmphwError as error:
        raise AmphwError(f"{option}: {error}") from None


def timed_like(found: Any, cfg: RunConfig[Any], device: str, instances: int) -> Measured:
    """The model's nodes with parameters, timed on a device that is here: frames of a worker for the `cpu`, of
    the device alone for another, as `amphw place` does. Raises AmphwError for one that refuses a node."""
    import os
    from dataclasses import asdict

    from amphw.cli.running import opened
    from amphw.engine.lowering.placing import HOST
    from amphw.estimate.count.traffic import count
    from amphw.estimate.network.assemble import apart, cost_model, facts, placeable
    from amphw.estimate.network.host_costs import host_costs
    from amphw.estimate.network.measured import Measured
    from amphw.host.run_model import chosen_instances
    from amphw.host.session import graph_of, update_rules
    from amphw.ir.device import DeviceOptions
    from amphw.ir.errors import AmphwError

    graph = graph_of(found, cfg)
    rules, nodes = update_rules(cfg, graph), placeable(graph)
    made: Any = opened(f"{HOST},{device}" if device != HOST else HOST)
    parts = made.parts if device != HOST else {}
    for label, why in getattr(made, "absent", {}).items():
        raise AmphwError(f"--like {device}: {label} is not there: {why}")
    found.prepare(cfg.model, cfg.train.seed)
    sample = chosen_instances(found, cfg, instances)
    traffic = count(apart(graph, nodes), sample)
    options = DeviceOptions(
        cfg.train.max_active_keys, 1, "self", cfg.train.seed, settings=asdict(cfg.device) | {"place": ""}
    )
    remarks().print("amphw: measuring what the nodes take here; this takes some seconds")
    firings = {n: traffic.nodes[n].firings.mean for n in nodes}
    costs = host_costs(graph, rules, options, sample, nodes, firings)
    about = facts(parts, {}, {})
    model = cost_model(
        *(graph, rules, parts, about, nodes, traffic, sample, costs, options, 1, os.cpu_count() or 1)
    )
    label = next(iter(parts), HOST)
    for name in nodes:
        if (name, label) in model.refused:
            raise AmphwError(f"{device} refuses node '{name}': {model.refused[name, label]}")
    seconds = {name: model.seconds[name, label].busy for name in nodes}
    done = {n: model.work[n].forward + model.work[n].backward + model.work[n].update for n in nodes}
    peak = max((done[name] / taken for name, taken in seconds.items() if taken > 0), default=0.0)
    if not peak:
        raise AmphwError(f"--like {device}: no node takes time there; name a device that computes")
    return Measured(device, seconds, peak)
