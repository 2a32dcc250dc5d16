"""Settings of the hardware, and of the model of its arithmetic, in `[device]` of a run's configuration."""

from __future__ import annotations

from dataclasses import dataclass

from amphw.ir.config_fields import option


@dataclass(frozen=True)
class HardwareOptions:
    """Declared to `amphw.host.devices`, which makes them part of the configuration."""

    clock: str = option(
        "",
        "on verilator: cycles a second of its clock, where its link has a rate; empty: those of "
        "large circuits on the ulx3s-85f",
    )
    lanes: int = option(
        16, "on verilator: multipliers of its lane engine, a power of two from 2", minimum=2, maximum=256
    )
    strict: bool = option(
        False, "on fixed, verilator and board: refuse weights outside of their format rather than clip them"
    )
