# amaranth: UnusedElaboratable=no
"""A simulated device does what Amaranth's own simulator says, at any split of its input and of its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from amphw.rtl.toolchain.environment import ToolchainError
from amphw.rtl.verilated import build
from amphw.rtl.verilated.simulation import Simulation
from tests.rtl.verilated.components import Adder


@pytest.fixture
def simulation() -> Any:
    with Simulation(Adder(traced=True), trace="sums", idle="idle") as made:
        yield made


def words(count: int, dtype: str = "uint16", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 15, count).astype(dtype)


def test_every_word_comes_out_once_and_in_order(simulation: Simulation) -> None:
    sent = words(50_000)
    accepted, received, cycles = simulation.exchange(sent, 60_000)
    assert (accepted, cycles, simulation.cycles) == (50_000, 60_000, 60_000)
    np.testing.assert_array_equal(received, sent + 3)


def test_the_split_into_calls_changes_nothing(simulation: Simulation) -> None:
    sent = words(2000)
    random = np.random.default_rng(1)
    received: list[np.ndarray] = []
    position = 0
    while sum(map(len, received)) < len(sent):
        offered = sent[position : position + int(random.integers(0, 40))]
        until = int(random.integers(0, 4))
        accepted, out, cycles = simulation.exchange(offered, int(random.integers(1, 30)), until_words=until)
        assert accepted <= len(offered) and (not until or len(out) <= until)
        position += accepted
        received.append(out)
    np.testing.assert_array_equal(np.concatenate(received), sent + 3)


def test_cycles_are_those_of_amaranths_simulator(simulation: Simulation) -> None:
    sent = words(40)
    _, received, cycles = simulation.exchange(sent, 10_000, until_words=len(sent))
    dut = Adder()
    taken: list[int] = []
    passed = 0

    async def bench(ctx: Any) -> None:
        nonlocal passed
        ctx.set(dut.link_out.ready, 1)
        position = 0
        while len(taken) < len(sent):
            ctx.set(dut.link_in.valid, position < len(sent))
            if position < len(sent):
                ctx.set(dut.link_in.payload, int(sent[position]))
                position += ctx.get(dut.link_in.ready)
            if ctx.get(dut.link_out.valid):
                taken.append(ctx.get(dut.link_out.payload))
            await ctx.tick()
            passed += 1

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert taken == received.tolist()
    assert passed == cycles


def test_it_returns_when_the_device_is_idle(simulation: Simulation) -> None:
    accepted, received, cycles = simulation.exchange(words(100), 1_000_000, until_idle=True)
    assert accepted == len(received) == 100
    assert 100 <= cycles < 110
    assert simulation.exchange(words(0), 1_000_000, until_idle=True).cycles == 0


def test_outputs_can_be_looked_at(simulation: Simulation) -> None:
    _, received, _ = simulation.exchange(words(5), 100)
    totals = simulation.peek("totals")
    assert (totals.words, totals.sum) == (5, -int(received.sum()))
    assert simulation.peek("idle") == 1
    simulation.exchange(words(20), 100, until_words=1)
    assert simulation.peek("held") > 0
    with pytest.raises(ToolchainError, match="no output level to look at. Outputs: totals, held, idle"):
        simulation.peek("level")


def test_what_the_traced_stream_carries_is_kept(simulation: Simulation) -> None:
    _, received, _ = simulation.exchange(words(40_000), 50_000)
    assert [record & 0xFFFF for record in simulation.traced] == [k & 0xFFFF for k in range(40_000)]
    assert [record >> 16 for record in simulation.traced] == received.tolist()


def test_a_reset_forgets_what_was_inside(simulation: Simulation) -> None:
    simulation.exchange(words(20), 100, until_words=1)
    simulation.reset()
    assert (simulation.cycles, simulation.traced, simulation.peek("held")) == (0, [], 0)
    sent = words(9, seed=2)
    np.testing.assert_array_equal(simulation.exchange(sent, 100).words, sent + 3)


@pytest.mark.thorough
def test_two_devices_of_one_library_are_apart() -> None:
    with Simulation(Adder()) as one, Simulation(Adder()) as other:
        one.exchange(words(7), 1)
        assert other.exchange(words(0), 50).words.size == 0
        assert one.exchange(words(0), 50).words.size == 1


@pytest.mark.thorough
def test_words_of_32_bits() -> None:
    with Simulation(Adder(bits=32, plus=70_000)) as simulation:
        sent = words(300, "uint32")
        np.testing.assert_array_equal(simulation.exchange(sent, 1000).words, sent + 70_000)
        with pytest.raises(ValueError, match="one axis of uint32, not uint16"):
            simulation.exchange(words(3), 10)


@pytest.mark.thorough
def test_a_closed_simulation_says_so() -> None:
    simulation = Simulation(Adder())
    simulation.close()
    simulation.close()
    with pytest.raises(ToolchainError, match="closed"):
        simulation.exchange(words(1), 1)


def test_the_second_one_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    Simulation(Adder()).close()

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError(f"started {arguments}")

    monkeypatch.setattr(build, "run", refuse)
    Simulation(Adder()).close()


class Ports(wiring.Component):
    """A component of given ports, which does nothing."""

    def elaborate(self, platform: Any) -> Module:
        return Module()


WORDS = stream.Signature(unsigned(16))


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ({"a": In(WORDS)}, r"one input stream and one output stream; this one has \['a'\] and none"),
        ({"a": In(WORDS), "b": In(WORDS), "c": Out(WORDS)}, r"\['a', 'b'\] and \['c'\]"),
        ({"a": In(stream.Signature(8)), "b": Out(WORDS)}, r"16 or both 32 bits, not \[8, 16\]"),
        ({"a": In(WORDS), "b": Out(WORDS), "speed": In(3)}, "nothing drives the inputs speed"),
        ({"a": In(WORDS), "b": Out(WORDS), "clk": Out(1)}, "called clk"),
        ({"a": In(WORDS), "b": Out(WORDS), "c__d": Out(1)}, "not a plain port name"),
    ],
)
def test_what_is_no_device_is_refused(signature: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolchainError, match=message):
        build.interface(Ports(signature))


def test_options_that_name_no_port_are_refused() -> None:
    with pytest.raises(
        ToolchainError, match="no output stream writes to trace. Streams: link_in, link_out, sums"
    ):
        build.library(Adder(traced=True), trace="writes")
    with pytest.raises(ToolchainError, match="no 1-bit output held"):
        build.library(Adder(), idle="held")


@pytest.mark.thorough
def test_a_failed_build_leaves_nothing_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPHW_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "_OPTIMIZE", "-no-such-option")
    with pytest.raises(ToolchainError, match="Simulation of Adder: make failed"):
        build.library(Adder())
    assert list((tmp_path / "rtl" / "verilated").iterdir()) == []


def test_an_evaluation_is_taken_step_by_step_where_clocks_at_the_inputs_alone_begin_one() -> None:
    begins = (
        "vlSelfRef.__Vtrigprevexpr___TOP__clk__0 = 1; vlSelfRef.__Vtrigprevexpr___TOP__clk_walker__0 = 0;"
    )
    assert build.evaluated_once(begins)
    reset = "vlSelfRef.__Vtrigprevexpr___TOP__top__DOT__design__DOT__held__0 = 1;"
    assert not build.evaluated_once(begins + reset)
