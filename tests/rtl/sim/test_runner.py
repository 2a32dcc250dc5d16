"""A bench that finds a fault fails, says so, and leaves waveforms behind."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from sim import runner

THROUGH = {"bits": 8, "capacity": 1}


class Patient(wiring.Component):
    """A buffer of one value."""

    def __init__(self) -> None:
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(8))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.d.comb += self.i.ready.eq(~self.o.valid)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [self.o.valid.eq(1), self.o.payload.eq(self.i.payload)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m


class Impatient(wiring.Component):
    """A buffer that takes its offer back when it has waited for a cycle."""

    def __init__(self) -> None:
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(8))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.d.comb += self.i.ready.eq(~self.o.valid)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [self.o.valid.eq(1), self.o.payload.eq(self.i.payload)]
        with m.Else():
            m.d.sync += self.o.valid.eq(0)
        return m


def test_a_fault_is_found_and_its_waveforms_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "FAILURES", tmp_path)
    with pytest.raises(
        runner.BenchFailure, match="stream o offered 0x.. and took it back before it was taken"
    ):
        runner.run_bench(Impatient, "through_bench", name="impatient", settings=THROUGH, seed=3)
    waves = (tmp_path / "impatient" / "dump.vcd").read_text()
    assert "o_valid" in waves and waves.count("\n#") > 5
    log = (tmp_path / "impatient" / "log").read_text()
    assert "took it back" in log and "TESTS=1 " in log  # of the test that failed, alone


def test_a_simulator_outlives_the_environment_that_built_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = runner._build

    def moved(source: str) -> Path:
        """The simulator as an environment in another folder, now deleted, would have left it."""
        shutil.copytree(kept(source), folder := tmp_path / "moved")
        program = folder / "top"
        binary, places = re.subn(rb"/[^\0]*/cocotb/libs", lambda m: b"/" * len(m[0]), program.read_bytes())
        assert places
        program.write_bytes(binary)
        return folder

    monkeypatch.setattr(runner, "_build", moved)
    assert runner.run_bench(Patient, "through_bench", name="patient", settings=THROUGH).tests > 0
