"""Settings of OpenCL devices, as `[device]` of a run's configuration has them."""

from __future__ import annotations

from dataclasses import dataclass

from amphw.ir.config_fields import option


@dataclass(frozen=True)
class OpenCLOptions:
    """Declared to `amphw.host.devices`, which makes them part of the configuration."""

    # Enough to keep a device busy, few enough that the frames behind can still grow.
    depth: int = option(
        3,
        "on opencl: frames in the queue; more keep a device busy, fewer let frames grow",
        minimum=1,
        maximum=64,
    )
    memory: int = option(
        0,
        "on opencl: bytes of each device for instances in flight; 0: a quarter of its memory, at most 2 GiB",
        minimum=0,
    )
