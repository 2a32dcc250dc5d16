"""A vector unit with a payload memory, run in Amaranth's simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from amphw.rtl.gateware.vector.command import VectorShape
from amphw.rtl.gateware.vector.unit import VectorUnit
from amphw.rtl.isa.memory import READ_LATENCY
from sim.models.vector import Command, execute


@dataclass
class Run:
    """What happened. cycles: from the first command's offer to the last `done`. written: address and word."""

    mem: list[int]
    cycles: int = 0
    reads: int = 0
    written: list[tuple[int, int]] = field(default_factory=list)
    written_when_done: list[int] = field(default_factory=list)


def simulate(
    shape: VectorShape,
    mem: Sequence[int],
    commands: Sequence[Command],
    pointers: Sequence[int] = (),
    resets: Sequence[int] = (),
    pauses: Sequence[int] = (),
    limit: int = 20_000,
) -> Run:
    """Give the unit the commands until all are done, and the memory back.

    pauses: cycles without an offer before each command; none where there is no entry.
    resets: so many cycles after the first command's offer the unit is reset; the memory gets its first
    contents again, the unit its commands. In cycles without a read, and when a word is read and written at
    once, the memory gives noise.
    """
    reset = Signal()
    unit = VectorUnit(shape)
    simulator = Simulator(ResetInserter(reset)(unit))
    simulator.add_clock(1e-8)
    run = Run(list(mem))
    noise = np.random.default_rng(0).integers(-(1 << 15), 1 << 15, 1 << 12).tolist()

    async def memory(ctx) -> None:  # type: ignore[no-untyped-def]
        a, b, write = unit.read_a, unit.read_b, unit.write
        ports = [signal for port in (a, b, write) for signal in (port.en, port.addr)]
        n, coming = 0, [[noise[0]] * (READ_LATENCY - 1) for _ in (a, b)]
        async for _, _, a_en, a_at, b_en, b_at, en, at, word in ctx.tick().sample(*ports, write.data):
            for port, asked, where, words in ((a, a_en, a_at, coming[0]), (b, b_en, b_at, coming[1])):
                n += 1
                clear = asked and not (en and at == where)
                words.append(run.mem[where] if clear else noise[n % len(noise)])
                ctx.set(port.data, words.pop(0))
            run.reads += a_en + b_en
            if en:
                run.mem[at] = word
                run.written.append((at, word))

    async def host(ctx) -> None:  # type: ignore[no-untyped-def]
        for index, address in enumerate(pointers):
            ctx.set(unit.pointer.en, 1)
            ctx.set(unit.pointer.index, index)
            ctx.set(unit.pointer.data, address)
            await ctx.tick()
        ctx.set(unit.pointer.en, 0)
        for stop in (*resets, None):
            run.cycles, run.reads, run.mem[:] = 0, 0, mem
            run.written.clear()
            run.written_when_done.clear()
            sent, left = 0, sum(pauses[:1])
            while len(run.written_when_done) < len(commands):
                if run.cycles == stop:
                    break
                assert run.cycles < limit, f"the unit hangs: {len(run.written_when_done)} commands done"
                if ctx.get(unit.done):
                    run.written_when_done.append(len(run.written))
                assert ctx.get(unit.idle) == (sent == len(run.written_when_done))
                offer = sent < len(commands) and left <= 0
                ctx.set(unit.command.valid, offer)
                if offer:
                    ctx.set(unit.command.payload, commands[sent].fields())
                left -= 1
                if offer and ctx.get(unit.command.ready):
                    sent += 1
                    left = sum(pauses[sent : sent + 1])
                await ctx.tick()
                run.cycles += 1
            if stop is not None:
                ctx.set(unit.command.valid, 0)
                ctx.set(reset, 1)
                await ctx.tick()
                ctx.set(reset, 0)
        assert ctx.get(unit.idle)

    simulator.add_testbench(memory, background=True)
    simulator.add_testbench(host)
    simulator.run()
    return run


def check(
    shape: VectorShape,
    mem: Sequence[int],
    commands: Sequence[Command],
    pointers: Sequence[int] = (),
    resets: Sequence[int] = (),
    pauses: Sequence[int] = (),
) -> Run:
    """Simulate, and compare every write, its time, and the memory with the reference."""
    run = simulate(shape, mem, commands, pointers, resets, pauses)
    wanted = list(mem)
    writes: list[tuple[int, int]] = []
    when_done = []
    for command in commands:
        ahead = list(wanted)
        addresses = execute(command, wanted, pointers, shape.curves).writes
        assert [at for at, _ in run.written[len(writes) :][: len(addresses)]] == addresses, command
        for at, word in run.written[len(writes) :][: len(addresses)]:
            ahead[at] = word
        wrong = [at for at in range(len(wanted)) if ahead[at] != wanted[at]]
        assert not wrong, f"{command} writes " + ", ".join(
            f"mem[{at}] = {ahead[at]}, not {wanted[at]}" for at in wrong[:8]
        )
        writes += run.written[len(writes) :][: len(addresses)]
        when_done.append(len(writes))
    assert run.mem == wanted
    assert len(run.written) == len(writes)
    # What a command wrote is there when it is done.
    assert all(there >= due for there, due in zip(run.written_when_done, when_done, strict=True))
    return run
