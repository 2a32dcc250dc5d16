"""A device between two AXI4-Streams, with a source and a sink that others wrote (cocotbext-axi).

The script is that of `device_bench`: what the host sends, and when, and what must come back.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, with_timeout
from cocotbext.axi import AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource

from amphw.rtl.gateware.link.axi_stream import LONGEST
from amphw.rtl.isa.wire import WORD
from sim.benches.device_bench import script

PAUSES = {"never": 0.0, "half": 0.5, "mostly": 0.9}


def pauses(probability: float) -> Iterator[bool]:
    """In which cycles a side rests."""
    return (random.random() < probability for _ in itertools.count())


class Host:
    def __init__(self, dut: Any, to_device: str = "never", from_device: str = "never"):
        self.dut = dut
        Clock(dut.aclk, 10, unit="ns").start()
        about = {"reset_active_level": False, "byte_size": WORD}
        self.source = AxiStreamSource(AxiStreamBus.from_prefix(dut, "s_axis"), dut.aclk, dut.aresetn, **about)
        self.sink = AxiStreamSink(AxiStreamBus.from_prefix(dut, "m_axis"), dut.aclk, dut.aresetn, **about)
        self.source.set_pause_generator(pauses(PAUSES[to_device]))
        self.sink.set_pause_generator(pauses(PAUSES[from_device]))
        self.came: list[int] = []
        self.packets: list[int] = []

    async def reset(self) -> None:
        self.dut.aresetn.value = 0
        for _ in range(3):
            await RisingEdge(self.dut.aclk)
        self.dut.aresetn.value = 1
        await RisingEdge(self.dut.aclk)

    async def until(self, words: int) -> None:
        """So many have come, in whole packets."""
        while len(self.came) < words:
            frame = await with_timeout(self.sink.recv(), 40, "ms")
            self.came += frame.tdata
            self.packets.append(len(frame.tdata))

    async def play(self) -> None:
        turns, came = script()
        for before, words in turns:
            await self.until(before)
            await self.source.send(AxiStreamFrame(words))
        await self.until(len(came))
        assert self.came == came
        assert max(self.packets) <= LONGEST


@cocotb.test()
@cocotb.parametrize(to_device=["never", "half"], from_device=["never", "half", "mostly"])
async def any_pace(dut: Any, to_device: str, from_device: str) -> None:
    """The same words come back whatever either side's pauses, and none waits for words of later packets."""
    host = Host(dut, to_device, from_device)
    await host.reset()
    await host.play()


@cocotb.test()
async def reset(dut: Any) -> None:
    """In the middle of a message; then everything from the beginning."""
    host = Host(dut)
    await host.reset()
    turns, _ = script()
    await host.source.send(AxiStreamFrame(turns[0][1]))
    for _ in range(2_000):
        await RisingEdge(dut.aclk)
    host.source.clear()
    host.sink.clear()
    await host.reset()
    host.sink.clear()
    await host.play()
