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
from datetime import date
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from amphw.bench.errors import BenchError
from amphw.bench.load import UsageMeter
from amphw.bench.plan import Say
from amphw.bench.processor import processor
from amphw.bench.validity import load_reasons, round_reasons
from amphw.host.run_folder import environment

ROWS = (1, 8, 32, 100)
WIDTHS = (100, 128, 256, 784)
STRETCH = 0.007
"""Seconds of one measurement."""

PAIRS = 3
"""Measurements of each side in a round."""

Run = Callable[[], None]


@dataclass(frozen=True)
class Row:
    """One shape. Microseconds, forward and backward together; form: rows x vectors of the three tiles."""

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
    try:
        sides: dict[str, Any] = _received(ours)
        meter = UsageMeter([process.pid or 0])
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}: {_received(ours):.2f} times as fast (geometric mean)")
        usage = meter.read()
        rows: list[Row] = _received(ours)
    finally:
        process.join(10)
        if process.is_alive():
            process.kill()
    ratios = [row.ratio for row in rows]
    reasons = load_reasons(usage) + round_reasons(rounds)
    return {
        "workload": "opencl",
        "geomean_vs_openblas": _geometric_mean(ratios),
        "least_vs_openblas": min(ratios),
        **sides,
        "rounds": rounds,
        "rows": [asdict(row) for row in rows],
        "foreign_load": usage.foreign,
        "valid": not reasons,
        "invalid_because": reasons,
        "date": date.today().isoformat(),
        "processor": processor(),
        "environment": environment(),
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
    """In the process of its own: sends what the sides are, each round's mean, and the rows; or why not."""
    from amphw.bench.opencl_sides import Machine
    from amphw.ir.errors import AmphwError

    try:
        machine = Machine()
        pairs = [_Pair(machine, *shape) for shape in shapes]
        connection.send(machine.sides)
        # Over all shapes in every round: a neighbour's work must not be all that one of them sees.
        for number in range(rounds):
            connection.send(_geometric_mean([pair.measure(number) for pair in pairs]))
        connection.send([pair.row() for pair in pairs])
    except AmphwError as error:
        connection.send(str(error))
    except Exception as error:  # the parent has no other way to hear of it
        connection.send(f"{type(error).__name__}: {error}")
        raise


def _geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))


class _Pair:
    """Both sides of one shape."""

    def __init__(self, machine: Any, k: int, din: int, dout: int):
        self.shape, self.layer = (k, din, dout), machine.layer(k, din, dout)
        chosen = [_fastest(forms) for forms in self.layer.openblas]
        self.openblas = ", ".join(name for name, _ in chosen)
        theirs = [run for _, run in chosen]

        def openblas() -> None:
            for run in theirs:
                run()

        self.runs: list[Run] = [self.layer.ours, openblas]
        least = [min(_seconds(run, 2) for _ in range(3)) for run in self.runs]
        self.repeats = [max(1, round(STRETCH / seconds)) for seconds in least]
        self.found: list[list[float]] = [[], []]

    def measure(self, number: int) -> float:
        """Both take turns -> the median ratio of this round."""
        for side in (0, 1):
            _seconds(self.runs[side], 2)  # into the caches
        for turn in range(number, number + PAIRS):
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                self.found[side].append(_seconds(self.runs[side], self.repeats[side]))
        return self._ratio(PAIRS)

    def _ratio(self, last: int) -> float:
        ours, other = (values[-last:] for values in self.found)
        return statistics.median(b / a for a, b in zip(ours, other, strict=True))

    def row(self) -> Row:
        ours, other = (statistics.median(values) * 1e6 for values in self.found)
        return Row(*self.shape, ours, other, self._ratio(0), self.layer.form, self.openblas)


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
