"""A component compiled into a shared library: Verilog, its C++ model by Verilator, and a shim.

The library depends on the processor too (`-march=native`), so that its name in the cache does.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from amphw.rtl.toolchain.build_cache import cached, key
from amphw.rtl.toolchain.environment import ToolchainError, require, run, versions
from amphw.rtl.toolchain.verilog import Port, clocks_of, ports, verilog

TOP = "Vtop"
"""The class of a compiled model."""
_LIBRARY = "libsimulation.so"
_OPTIMIZE = "-O3 -march=native -fno-semantic-interposition"
_VERILATE = ("--cc", "--exe", "-O3", "--x-assign", "fast", "--x-initial", "0", "-Wno-fatal", "-Wno-lint")
WORDS = {16: "uint16_t", 32: "uint32_t"}
_TRACE_BITS = 64
_ZERO = re.compile(r"\S.*\[\d+\] = \d+'[hb]0+;")
_BEGINS = re.compile(r"__Vtrigprevexpr___TOP__(\w+?)__\d+\b")
_CLOCK = re.compile(r"clk(_\w+)?")
_AT_START = re.compile(r"\$auto\$verilog_backend")


@dataclass(frozen=True)
class Interface:
    """The ports of a simulated component, by the part that they play.

    link_in, link_out: the names of its two streams of words. trace: the name of a third stream, or "".
    word_bits: of a word of the link, 16 or 32. outputs: every other output, which can be looked at. clocks:
    names of clocks that need not tick in every cycle.
    """

    link_in: str
    link_out: str
    trace: str
    word_bits: int
    outputs: tuple[Port, ...]
    clocks: tuple[str, ...] = ()


def interface(component: Any, trace: str = "") -> Interface:
    """Find the streams of a component. Raises ToolchainError unless it has exactly the ports of a device.

    These are one input stream and one output stream of 16- or 32-bit words, and outputs. `trace` names an
    output stream of up to 64 bits that is written down and never waits.
    """
    who = type(component).__name__
    declared = {port.name: port for port in ports(component)}
    streams = [
        name.removesuffix("_payload")
        for name in declared
        if name.endswith("_payload")
        and {name.replace("_payload", end) for end in ("_valid", "_ready")} <= set(declared)
    ]
    if trace and (trace not in streams or declared[f"{trace}_payload"].is_input):
        raise ToolchainError(
            f"{who}: there is no output stream {trace} to trace. Streams: {', '.join(streams)}."
        )
    links: dict[bool, list[str]] = {True: [], False: []}
    for name in streams:
        if name != trace:
            links[declared[f"{name}_payload"].is_input].append(name)
    if [len(links[True]), len(links[False])] != [1, 1]:
        raise ToolchainError(
            f"{who}: a simulated component has one input stream and one output stream; "
            f"this one has {links[True] or 'none'} and {links[False] or 'none'}."
        )
    widths = {declared[f"{name}_payload"].width for name in (*links[True], *links[False])}
    if len(widths) != 1 or not widths <= set(WORDS):
        raise ToolchainError(
            f"{who}: the words of both links must have 16 or both 32 bits, not {sorted(widths)}."
        )
    if trace and declared[f"{trace}_payload"].width > _TRACE_BITS:
        raise ToolchainError(f"{who}: a traced payload has at most {_TRACE_BITS} bits.")
    taken = {f"{name}_{end}" for name in streams for end in ("payload", "valid", "ready")}
    rest = [port for name, port in declared.items() if name not in taken]
    driven = [port.name for port in rest if port.is_input]
    if driven:
        raise ToolchainError(f"{who}: nothing drives the inputs {', '.join(driven)} in a simulation.")
    return Interface(
        links[True][0], links[False][0], trace, widths.pop(), tuple(rest), tuple(clocks_of(component))
    )


def shim(form: Interface, idle: str = "") -> str:
    """The C++ around the model. `idle` names the 1-bit output that ends `until_idle`."""
    trace = form.trace
    fields = {
        "TOP": TOP,
        "WORD": WORDS[form.word_bits],
        "IN": form.link_in,
        "OUT": form.link_out,
        "IDLE": f"top.{idle}" if idle else "true",
        "TRACE_READY": f"top.{trace}_ready = 1;" if trace else "",
        "TRACE_STOP": f"top.{trace}_ready = 0;" if trace else "",
        "TRACE_TAKE": f"if (top.{trace}_valid) trace[traced++] = top.{trace}_payload;"
        if trace
        else "(void)trace;",
        "TICK": " ".join(f"top.clk_{name} ^= top.ticks_{name};" for name in form.clocks),
        "PEEKS": "\n".join(f"    case {k}: {_peek(port)} break;" for k, port in enumerate(form.outputs)),
    }
    text = resources.files("amphw.rtl.verilated").joinpath("shim.cpp.in").read_text()
    for name, value in fields.items():
        text = text.replace(f"@{name}@", value)
    return text


def _peek(port: Port) -> str:
    if port.width > 64:
        return f"memcpy(out, top.{port.name}.data(), {4 * -(-port.width // 32)});"
    return f"{{ uint64_t v = top.{port.name}; memcpy(out, &v, {4 if port.width <= 32 else 8}); }}"


def _quicker(source: str) -> str:
    """Without what Verilator does anyway, at length: memories begin with zeros, processes run at time 0.

    It reads the hundred thousands of lines of a large memory in a minute.
    """
    lines, initial = [], False
    for line in source.splitlines(keepends=True):
        bare = line.strip()
        initial = (initial and bare != "end") or bare == "initial begin"
        if not (_AT_START.search(bare) or (initial and _ZERO.fullmatch(bare))):
            lines.append(line)
    return "".join(lines)


def _either_edge(source: str) -> str:
    """With a tick at both edges of each clock, so that none is evaluated where nothing happens."""
    return source.replace("@(posedge ", "@(edge ")


def library(component: Any, *, trace: str = "", idle: str = "", verilator: Sequence[str] = ()) -> Path:
    """The path of the component's shared library, compiled unless the cache has it.

    idle: the 1-bit output that says that the component has nothing to do. verilator: further options.
    Raises ToolchainError for a component that is not a device, and where a tool is missing or fails.
    """
    require("simulation")
    form = interface(component, trace)
    if idle and not any(port.name == idle and port.width == 1 for port in form.outputs):
        raise ToolchainError(f"{type(component).__name__}: there is no 1-bit output {idle}.")
    # Without a reset there is less to evaluate in each cycle.
    source = verilog(component, clocked=True, reset=False)
    made: dict[str, str] = component.sources() if hasattr(component, "sources") else {}
    doing = f"Simulation of {type(component).__name__}"
    return compiled(source, shim(form, idle), doing, made, verilator)


def compiled(
    source: str,
    wrapper: str,
    doing: str,
    others: Mapping[str, str] | None = None,
    verilator: Sequence[str] = (),
    *,
    either_edge: bool = True,
) -> Path:
    """The path of the shared library of Verilog and of C++ around its model, unless the cache has it.

    source: with the top module `top`. wrapper: the C++. others: further files, by name. doing: see
    `environment.run`. either_edge: whether each edge of a clock is a tick. Raises ToolchainError where a tool
    fails.
    """
    source = _quicker(source)
    if either_edge:
        source = _either_edge(source)
    foreign = {name: _either_edge(text) for name, text in (others or {}).items()}
    options = (*_VERILATE, *verilator)

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="amphw-verilated-") as scratch:
            work = Path(scratch)
            (work / "top.v").write_text(source)
            (work / "shim.cpp").write_text(wrapper)
            for name, text in foreign.items():
                (work / name).write_text(text)
            # Make runs in the model's folder, Verilator here.
            files = [f"../{name}" if name.endswith(".cpp") else name for name in foreign]
            run(
                [
                    *("verilator", *options, "--top-module", "top", "--prefix", TOP, "--Mdir", "model"),
                    *("-CFLAGS", "-fPIC", "-LDFLAGS", "-shared", "-o", _LIBRARY, "top.v"),
                    *("../shim.cpp", *files),
                ],
                work,
                doing=doing,
            )
            model = "".join(f.read_text() for f in (work / "model").glob(f"{TOP}*.cpp"))
            (work / "evaluation.h").write_text(f"#define ONCE {int(evaluated_once(model))}\n")
            flags = [f"OPT_FAST={_OPTIMIZE}", "OPT_SLOW=-O0", "OPT_GLOBAL=-O2"]
            jobs = f"-j{os.cpu_count() or 1}"
            run(["make", jobs, "-C", "model", "-f", f"{TOP}.mk", *flags], work, doing=doing)
            shutil.copy2(work / "model" / _LIBRARY, folder / _LIBRARY)
            (folder / "top.v").write_text(source)

    name = key(
        *(source, wrapper, *foreign.values(), " ".join(options)),
        *(_OPTIMIZE, versions("verilator"), _compiler(), _processor()),
    )
    return cached("verilated", name, build) / _LIBRARY


def evaluated_once(model: str) -> bool:
    """Whether an evaluation is over after each of its steps has been taken once, as `shim.cpp.in` does it.

    That is so where nothing but edges of clocks at the inputs begins a step: no clock is made inside, no
    reset is asynchronous, and no loop of combinational logic has to be gone around. model: Verilator's C++.
    """
    return all(_CLOCK.fullmatch(name) for name in _BEGINS.findall(model))


def _compiler() -> str:
    return subprocess.run(["g++", "--version"], capture_output=True, text=True).stdout.split("\n", 1)[0]


def _processor() -> str:
    """What `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.platform()
    known = sorted({line for line in lines if line.startswith(("flags", "model name", "Features"))})
    return hashlib.sha256("\n".join(known).encode()).hexdigest()
