"""The network that the options of `amphw estimate` describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from amphw.estimate.cases import Assumed
    from amphw.estimate.devices import Circuit
    from amphw.estimate.outcome import Origin
    from amphw.estimate.topology import Network


@dataclass(frozen=True)
class Options:
    """As they were written; None: not given."""

    flops: str | None
    lanes: int | None
    clock: str | None
    formats: str | None
    listed: Path | None
    devices: int | None
    link: str | None
    latency: str | None
    credits: int | None
    memory: str | None
    utilisation: float | None

    @property
    def said(self) -> dict[str, str]:
        """Option by the name of what it states."""
        return {
            name: f"--{'network' if name == 'listed' else name} {value}"
            for name, value in vars(self).items()
            if value is not None
        }

    def check(self, assumed: bool) -> None:
        """assumed: a rate is known without them. Raises typer.BadParameter for options that say something
        twice, or nothing of how fast devices are."""
        fast = [f"--{n}" for n in ("flops", "lanes") if getattr(self, n) is not None]
        if self.listed is not None:
            fast += [f"--{n}" for n in ("devices", "memory", "utilisation") if getattr(self, n) is not None]
            if fast:
                raise typer.BadParameter(
                    f"{fast[0]} is for devices that are alike; --network lists them", param_hint=fast[0]
                )
        elif len(fast) > 1:
            raise typer.BadParameter(
                "a device has either --flops or --lanes; --network lists several", param_hint="--lanes"
            )
        elif not fast and not assumed:
            raise typer.BadParameter(
                "say how fast a device is, as in --flops 1TFLOPS, or --lanes 16 for a circuit",
                param_hint="--flops",
            )
        of_circuits = [f"--{n}" for n in ("clock", "formats") if getattr(self, n) is not None]
        if self.listed is not None:
            of_circuits = [option for option in of_circuits if option == "--clock"]  # which the file says
        if self.lanes is None and of_circuits:
            raise typer.BadParameter(f"{of_circuits[0]} is for --lanes", param_hint=of_circuits[0])
        if self.lanes is not None and self.utilisation is not None:
            raise typer.BadParameter(
                "--utilisation is for --flops: cycles of circuits are counted", param_hint="--utilisation"
            )


FORMATS = "q4.12"


def network_of(options: Options, assumed: Assumed | None, policy: str) -> Network:
    """assumed: a paper's, for what is not given. policy: of the model's run."""
    from dataclasses import replace

    from amphw.estimate.network_file import read_network
    from amphw.estimate.topology import Network

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
    use = options.utilisation if options.utilisation is not None else assumed.use if assumed else 1.0
    flops = given("--flops", options.flops, "operations a second")
    return replace(alike, flops=flops or (assumed.flops if assumed else 0.0), use=use)


def circuit(options: Options, lanes: int, clock: float | None) -> Circuit:
    from amphw.estimate.devices import Circuit
    from amphw.rtl.circuit_model import CLOCK, Circuits
    from amphw.rtl.formats import Formats

    return Circuit(lanes, clock or CLOCK, Circuits(Formats.parse(options.formats or FORMATS)))


def circuit_origins(said: Mapping[str, str]) -> dict[str, Origin]:
    """What is known of circuits, and how. said: see `Options`."""
    from amphw.estimate.outcome import Origin
    from amphw.rtl.circuit_model import CLOCK

    found = {
        "lanes": Origin("stated", said.get("lanes") or said["listed"]),
        "cycles": Origin(
            "counted",
            "microprograms played on the times of the engines, control programs step by step; compared with "
            "simulated circuits by benchmarks/circuit_cycles.py",
        ),
        "resources": Origin(
            "synthesised", "a line through builds of list reduction on ECP5 by Yosys, without momentum"
        ),
        "formats": Origin("stated", said["formats"]) if "formats" in said else Origin("assumed", FORMATS),
    }
    placed = f"{CLOCK / 1e6:g} MHz: nextpnr on an ECP5-85F, a device of 4 lanes; more lanes taken as alike"
    stated = "clock" in said or "listed" in said
    found["clock"] = (
        Origin("stated", said.get("clock") or said["listed"]) if stated else Origin("synthesised", placed)
    )
    return found


def given(option: str, text: str | None, of: str) -> float | None:
    """The quantity; an error says which option it is about."""
    from amphw.ir.errors import AmphwError
    from amphw.ir.units import quantity

    try:
        return None if text is None else quantity(text, of)
    except AmphwError as error:
        raise AmphwError(f"{option}: {error}") from None
