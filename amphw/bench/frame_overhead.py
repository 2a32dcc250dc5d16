"""What delivering a message costs beyond arithmetic: messages of one float through a node that doubles it.

An instance sends MESSAGES messages through the node and into a loss; every one comes back. With a frame for
each of them the time is that of delivering and of frames; with many to a frame, of delivering alone. The
difference, spread over a frame's messages, is what a frame costs. The arithmetic, four operations a message,
is not worth subtracting.
"""

from __future__ import annotations

import time
from datetime import date
from typing import Any

from amphw.bench.figures import Figure
from amphw.bench.load import Usage, UsageMeter, total
from amphw.bench.plan import Say
from amphw.bench.processor import processor
from amphw.bench.validity import load_reasons, round_reasons
from amphw.host.devices import make_device
from amphw.host.run_folder import environment
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.expr import Const
from amphw.ir.functions import take
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema
from amphw.ir.nodes import NPT, PPT, Loss, Source
from amphw.ir.program import ParamSpec, trace
from amphw.ir.state import StateType, state_field
from amphw.ir.update import UpdateRule

MESSAGES = 512
KEYS = 4
CAPS = (1, 64)


def doubling_graph(messages: int = MESSAGES) -> Graph:
    """Source - embed - double - loss: behind a parameter, or no gradient would have a reason to come back."""
    n = state_field("n", Const(messages), messages)
    g = Graph("doubling", Schema())
    g.add(Source("numbers", StateType((n,))))
    g.add(
        PPT(
            "embed", trace(lambda p, x: take(p.E, Const(0)), {"x": 0}, {"E": ParamSpec("E", (1, 1), "zeros")})
        )
    )
    g.add(NPT("double", trace(lambda x: x * 2.0, {"x": 1})))
    g.add(Loss("loss", trace(lambda y: y * y, {"y": 1})))
    g.connect("numbers", "embed", "double", "loss")
    return g


def measure_overhead(
    device_name: str, seconds: float, rounds: int, say: Say, messages: int = MESSAGES
) -> dict[str, Any]:
    """Microseconds a message, by frame cap, with one worker -> the record."""
    found: dict[int, list[float]] = {cap: [] for cap in CAPS}
    usages: list[Usage] = []
    for number in range(rounds):
        for cap in CAPS:
            meter = UsageMeter([])
            found[cap].append(_us_per_message(device_name, cap, seconds, messages))
            usages.append(meter.read())
        say(f"round {number + 1} of {rounds}: " + ", ".join(f"{found[c][-1]:.2f} us at {c}" for c in CAPS))
    figures = {cap: Figure.of(values) for cap, values in found.items()}
    alone, many = (figures[cap].median for cap in CAPS)  # type: ignore[union-attr]
    usage = total(usages)
    reasons = load_reasons(usage) + round_reasons(rounds)
    return {
        "workload": "frame-overhead",
        "us_per_message": alone,
        "us_per_frame": (alone - many) / (1 - 1 / CAPS[1]),
        "caps": [{"frame_cap": cap, "us_per_message": f.to_json()} for cap, f in figures.items() if f],
        "foreign_load": usage.foreign,
        "valid": not reasons,
        "invalid_because": reasons,
        "date": date.today().isoformat(),
        "processor": processor(),
        "environment": environment(),
    }


def _us_per_message(device_name: str, cap: int, seconds: float, messages: int) -> float:
    """A device of one worker, pumped for so long; messages are counted forward and backward."""
    graph = doubling_graph(messages)
    device = make_device(device_name)
    # Nodes stay apart, or there would be nothing to deliver.
    settings = {"workers": 1, "frame_cap": cap, "frame_rows": max(cap, 1), "fuse": False}
    device.load(graph, {"*": UpdateRule(interval=1 << 30)}, DeviceOptions(KEYS, 0, "off", settings=settings))
    instances = [Instance(number=number) for number in range(KEYS)]
    try:
        for round_ in range(2):
            device.statistics()
            began, generation = time.perf_counter(), round_ * 1_000_000
            end = began + (seconds if round_ else seconds / 4)  # the first warms up
            free = list(range(KEYS))
            while time.perf_counter() < end:
                while free:
                    slot = free.pop()
                    generation += 1
                    device.submit(slot, generation, instances[slot], Mode.TRAIN)
                free += [report.slot for report in device.poll(0.05)]
            device.drain()
            elapsed, counted = time.perf_counter() - began, device.statistics()
        return elapsed * 1e6 / max(1, counted.forward + counted.backward)
    finally:
        device.close()
