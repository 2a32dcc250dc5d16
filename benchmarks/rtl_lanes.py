"""Speed of the lane engine: multiply-accumulates a cycle, simulated.

    python benchmarks/rtl_lanes.py
    python benchmarks/rtl_lanes.py --json out.json

A layer of 64 x 64 with bias. Cycles from one command's `done` to the next, in a stream of equal commands;
the ideal is K * N / lanes of them forward, twice that backward: the row of the bias is overhead. Size and
clock rate: benchmarks/rtl_quality.py.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from amaranth.hdl import Module
from amaranth.lib import memory
from amaranth.sim import Simulator

from amphw.rtl.gateware.lanes.engine import LaneEngine
from amphw.rtl.gateware.lanes.shape import LaneShape
from amphw.rtl.isa.commands import LaneOp
from sim.memory import read_of

SIZE = 64
ADDRESS_BITS = 10
BAR = 0.95
COMMANDS = 6


def shape_of(lanes: int) -> LaneShape:
    rows_of_beats = -(-SIZE // lanes)
    beats = max(512, (SIZE + 1) * rows_of_beats)  # a block RAM is 512 words deep at its widest
    return LaneShape(lanes, beats, rows_of_beats, ADDRESS_BITS)


def with_memory(engine: LaneEngine) -> Module:
    m = Module()
    m.submodules.engine = engine
    m.submodules.payload = payload = memory.Memory(
        shape=16, depth=1 << ADDRESS_BITS, init=[], attrs={"no_rw_check": 1}
    )
    for port in (engine.read_a, engine.read_b):
        m.d.comb += port.data.eq(read_of(m, payload, port.addr))
    write, port = payload.write_port(), engine.write
    m.d.comb += [write.en.eq(port.en), write.addr.eq(port.addr), write.data.eq(port.data)]
    return m


def cycles_of(lanes: int, op: LaneOp, **fields: Any) -> float:
    """From `done` to `done`, once the stream flows."""
    engine = LaneEngine(shape_of(lanes))
    done_at: list[int] = []
    command = {
        "op": op, "count": 1, "x": 0, "y": 512, "dz": 256, "base": 0, "rows": SIZE, "columns": SIZE,
        "blocks": -(-SIZE // lanes), "bias": 1, **fields,
    }  # fmt: skip

    async def testbench(ctx: Any) -> None:
        ctx.set(engine.command.payload, command)
        ctx.set(engine.command.valid, 1)
        cycle = 0
        while len(done_at) < COMMANDS:
            await ctx.tick()
            cycle += 1
            if ctx.get(engine.done):
                done_at.append(cycle)

    simulator = Simulator(with_memory(engine))
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()
    return (done_at[-1] - done_at[1]) / (COMMANDS - 2)


def throughput(lanes: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, op, factor, fields in (
        ("forward", LaneOp.FORWARD, 1, {}),
        ("backward", LaneOp.BACKWARD, 2, {"want_dx": 1, "want_dw": 1}),
        ("backward, weights only", LaneOp.BACKWARD, 1, {"want_dw": 1}),
        ("update", LaneOp.UPDATE, 0, {"rows": SIZE + 1, "scale": 1000}),
    ):
        cycles = cycles_of(lanes, op, **fields)
        ideal = factor * SIZE * SIZE / lanes if factor else (SIZE + 1) * SIZE
        found[name] = {"cycles": cycles, "ideal": ideal, "efficiency": ideal / cycles}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lanes", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    for lanes in arguments.lanes:
        results[f"{lanes} lanes"] = found = {"throughput": throughput(lanes)}
        for name, figures in found["throughput"].items():
            verdict = (
                "" if name == "update" else "  ok" if figures["efficiency"] >= BAR else f"  below {BAR:.0%}"
            )
            print(
                f"{lanes} lanes, {name}: {figures['cycles']:.1f} cycles, ideal {figures['ideal']:.0f}: "
                f"{figures['efficiency']:.1%}{verdict}"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
