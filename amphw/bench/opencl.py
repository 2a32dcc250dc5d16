"""Generated OpenCL kernels beside OpenBLAS: forward and backward of a layer, one thread each.

Ours is what frames run: Y = X W + b, dX = dY W', and dW += X' dY with db += the sum of dY's rows, as
generated for the device, over row tables, with their launches and a `finish`. Theirs is the fastest way we
know to do the same with numpy's OpenBLAS or by calling OpenBLAS: results in place, transposes as views or as
copies kept (W'), gradients added by the library itself or by numpy, whichever is faster, for each shape and
each of the three.

PoCL's `basic` device computes in the calling thread. Which devices PoCL has is read from the environment when
its platforms are first asked for, as is which processor OpenBLAS takes this one for, so a process of its own
measures. Both take turns in it, in stretches of some milliseconds. Times are medians; a ratio is the median
of those of two stretches next to each other, in which the machine was most likely the same.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from amphw.bench.errors import BenchError
from amphw.bench.plan import Say

ROWS = (1, 8, 32, 100)
WIDTHS = (100, 128, 256, 784)
STRETCH = 0.007
"""Seconds of one measurement."""

PAIRS = 3
"""Measurements of each side in a round."""

Run = Callable[[], None]


@dataclass(frozen=True)
class Row:
    """One shape. Microseconds of forward and backward together; form: rows x vectors of each kernel's tile."""

    k: int
    din: int
    dout: int
    ours_us: float
    openblas_us: float
    ratio: float
    form: str
    openblas: str
    """Which of its forms was the fastest, for each of the three."""


def measure_opencl(
    rounds: int, say: Say, shapes: Sequence[tuple[int, int, int]] | None = None
) -> dict[str, Any]:
    """Measure every shape (k, din, dout), in a process of its own -> the record."""
    shapes = shapes or [(k, *widths) for k in ROWS for widths in product(WIDTHS, WIDTHS)]
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_measure_all, args=(theirs, shapes, rounds))
    kept = dict(os.environ)
    os.environ.update(_settings())
    for name in _unset():
        os.environ.pop(name, None)
    try:
        process.start()
    finally:
        os.environ.clear()
        os.environ.update(kept)
    theirs.close()
    rows: list[Row] = []
    try:
        environment: dict[str, Any] = _received(ours)
        for _ in shapes:
            row = _received(ours)
            rows.append(row)
            say(
                f"{row.k} x {row.din} x {row.dout}: {row.ours_us:.1f} us, OpenBLAS {row.openblas_us:.1f}, "
                f"{row.ratio:.2f} times as fast"
            )
    finally:
        process.join(10)
        if process.is_alive():
            process.kill()
    ratios = [row.ratio for row in rows]
    return {
        "workload": "opencl",
        "geomean_vs_openblas": math.exp(statistics.fmean(math.log(r) for r in ratios)),
        "least_vs_openblas": min(ratios),
        **environment,
        "rounds": rounds,
        "rows": [asdict(row) for row in rows],
    }


def _received(ours: Any) -> Any:
    try:
        got = ours.recv()
    except EOFError:
        raise BenchError("the process that measures the kernels ended without a word") from None
    if isinstance(got, str):
        raise BenchError(f"the kernels cannot be measured: {got}")
    return got


def _settings() -> dict[str, str]:
    """The environment: one thread for both sides, and OpenBLAS's best kernels.

    For a processor that it does not know, OpenBLAS takes kernels of half the vector width, at half the speed.
    """
    wanted = {"POCL_DEVICES": "basic", "OPENBLAS_NUM_THREADS": "1"}
    try:
        flags = Path("/proc/cpuinfo").read_text().split("flags", 1)[-1].split("\n", 1)[0].split()
    except OSError:
        flags = []
    if {"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= set(flags):
        wanted["OPENBLAS_CORETYPE"] = "SKYLAKEX"
    return wanted


def _unset() -> list[str]:
    """What else may slow OpenBLAS down."""
    return [name for name in os.environ if name.startswith("OPENBLAS_") and name not in _settings()]


def _measure_all(connection: Any, shapes: Sequence[tuple[int, int, int]], rounds: int) -> None:
    """In the process of its own: sends the environment, then a `Row` a shape, or why it cannot."""
    from amphw.bench.opencl_sides import Machine
    from amphw.ir.errors import AmphwError

    try:
        machine = Machine()
        connection.send(machine.environment)
        for shape in shapes:
            connection.send(_measure(machine, shape, rounds))
    except AmphwError as error:
        connection.send(str(error))
    except Exception as error:  # the parent has no other way to hear of it
        connection.send(f"{type(error).__name__}: {error}")
        raise


def _measure(machine: Any, shape: tuple[int, int, int], rounds: int) -> Row:
    layer = machine.layer(*shape)
    chosen = [_fastest(forms) for forms in layer.openblas]
    theirs = [run for _, run in chosen]

    def openblas() -> None:
        for run in theirs:
            run()

    both: list[Run] = [layer.ours, openblas]
    repeats = [max(1, round(STRETCH / _seconds(run, 3))) for run in both]
    found: list[list[float]] = [[], []]
    for number in range(PAIRS * rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            found[side].append(_seconds(both[side], repeats[side]))
    ours, other = (statistics.median(values) for values in found)
    k, din, dout = shape
    names = ", ".join(name for name, _ in chosen)
    ratio = statistics.median(b / a for a, b in zip(*found, strict=True))
    return Row(k, din, dout, ours * 1e6, other * 1e6, ratio, layer.form, names)


def _fastest(forms: dict[str, Run]) -> tuple[str, Run]:
    """Of several ways to the same result; the best of some short stretches, in turns."""
    seconds = dict.fromkeys(forms, math.inf)
    repeats = {name: max(1, round(STRETCH / 7 / _seconds(run, 2))) for name, run in forms.items()}
    for _ in range(5):
        for name, run in forms.items():
            seconds[name] = min(seconds[name], _seconds(run, repeats[name]))
    name = min(seconds, key=lambda each: seconds[each])
    return name, forms[name]


def _seconds(run: Run, repeats: int) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - began) / repeats
