"""Section `[device]`: what holds for devices of any kind, and what each declares for itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from amphw.host.devices import declared_options
from amphw.ir.config_fields import NONE, check_section, option
from amphw.ir.device import SILENCE
from amphw.ir.passes import RULES
from amphw.ir.precision import PRECISIONS


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
    precision: str = option(
        "float32",
        "on cpu: what matrix products are taken of; bf16: of both sides rounded to bfloat16, added up in "
        "float32, by the instruction set AVX512-BF16, which the processor must have",
        choices=PRECISIONS,
    )
    place: str = option(
        "",
        "in a run on several devices: the device of some nodes, such as cell=verilator,head=cpu; for the "
        "others one is chosen",
    )
    tile: str = option(
        "",
        "layers to cut into tiles, which may then be placed apart, such as cell:2,head:4",
    )
    replicate: str = option(
        "",
        "nodes to replicate, and into how many copies, such as cell:4,head:2; they are averaged after every "
        "epoch, and by replicate_every",
    )
    replicate_every: int = option(
        0,
        "instances after which copies of nodes are averaged within an epoch as well; on cpu workers go on "
        "meanwhile; 0: at its end alone",
        minimum=0,
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
