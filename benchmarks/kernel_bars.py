"""Speed of the native kernels on one thread, beside the BLAS library that numpy brings.

    python benchmarks/kernel_bars.py                   # the best instruction set of this machine
    python benchmarks/kernel_bars.py --isa avx2        # another that it runs

Products [m, k] @ [k, n] for the few rows that a frame has, weight gradients, updates, and tile code. Every
figure is the best of many repetitions, own and BLAS taken in turns; still, read it on a quiet machine. BLAS
is called from numpy, which adds about half a microsecond; a product of one row takes a few. The peak is that
of BLAS on a large square product. Writes benchmarks/results/kernels-ISA.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from amphw.engine import _native
from amphw.host.run_folder import environment

kernels = _native.kernels
RESULTS = Path(__file__).parent / "results"
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
# [k, n]: the Tree-LSTM's cell and its transposed partner, an MNIST layer, the list-reduction cell
SHAPES = ((300, 750), (750, 300), (784, 784), (128, 128))
GRADIENT_ROWS = (128, 256)
OPERATIONS = "Mov Add Fma MulDSigmoid Sigmoid Tanh Exp Log SumCols MaxCols Dropout".split()
# GFLOP/s with AVX-512, on one core of the machine that the native data plane was designed on
BARS = dict(zip(ROWS, (76, 126, 158, 182, 187, 195, 201, 206), strict=True))
GRADIENT_BAR = 200


def blas_architecture() -> str:
    """The processor that BLAS was compiled for, as far as it says so."""
    found = [
        lib.get("architecture", lib["internal_api"]) for lib in threadpool_info() if lib["user_api"] == "blas"
    ]
    return ", ".join(found) or "unknown"


def restart_with_fair_blas() -> None:
    """Make OpenBLAS use AVX-512 where this machine has it.

    It leaves AVX-512 alone on a processor that it does not know, and where the environment tells it to.
    """
    old = blas_architecture() in ("Haswell", "Zen", "Sandybridge", "Nehalem", "Prescott")
    if old and "avx512" in kernels.isa_names() and os.environ.get("OPENBLAS_CORETYPE") != "SKYLAKEX":
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
        os.execve(sys.executable, [sys.executable, *sys.argv], {**inherited, "OPENBLAS_CORETYPE": "SKYLAKEX"})


def best_seconds(work: Callable[[], Any], repeats: int) -> float:
    """Least seconds of one call, each repetition being as many calls as take 0.2 ms."""
    work()
    calls, best = 1, float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(calls):
            work()
        best = min(best, (time.perf_counter() - began) / calls)
        calls = max(1, int(2e-4 / best))
    return best


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def in_turns(rounds: int, *measurements: Callable[[], float]) -> list[float]:
    """The least of each measurement's results; what disturbs the machine for a while disturbs all of them."""
    return [min(times) for times in zip(*[[m() for m in measurements] for _ in range(rounds)], strict=True)]


def sgemm_peak() -> float:
    a, b, out = normal(2048, 2048), normal(2048, 2048), np.empty((2048, 2048), np.float32)
    return 2 * 2048**3 / best_seconds(lambda: np.matmul(a, b, out=out), 5) / 1e9


def products(isa: str, rounds: int) -> list[dict[str, Any]]:
    found = []
    for k, n in SHAPES:
        for m in ROWS:
            a, b, out = normal(m, k), normal(k, n), np.empty((m, n), np.float32)
            own, blas = in_turns(
                rounds,
                lambda m=m, k=k, n=n: kernels.time_gemm(isa, m, k, n, 20),
                lambda a=a, b=b, out=out: best_seconds(lambda: np.matmul(a, b, out=out), 20),
            )
            flops = 2e-9 * m * k * n
            row = {"product": f"[{m},{k}] @ [{k},{n}]", "own": flops / own, "blas": flops / blas}
            bar = BARS[m] if isa == "avx512" and (k, n) == (300, 750) else None
            report(row, bar)
            found.append({**row, "bar": bar})
    return found


def gradients(isa: str, rounds: int) -> list[dict[str, Any]]:
    found = []
    for k, n in SHAPES[:1] + SHAPES[2:]:
        for m in GRADIENT_ROWS:
            x, d, out = normal(m, k), normal(m, n), np.empty((k, n), np.float32)
            own, blas = in_turns(
                rounds,
                lambda m=m, k=k, n=n: kernels.time_gradient(isa, m, k, n, 20),
                lambda x=x, d=d, out=out: best_seconds(lambda: np.matmul(x.T, d, out=out), 20),
            )
            flops = 2e-9 * m * k * n
            row = {"product": f"[{k},{m}] @ [{m},{n}]", "own": flops / own, "blas": flops / blas}
            bar = GRADIENT_BAR if isa == "avx512" and (k, m) == (300, 128) else None
            report(row, bar)
            found.append({**row, "bar": bar})
    return found


def report(row: dict[str, Any], bar: int | None) -> None:
    met = "" if bar is None else f"   bar {bar:3}: {'met' if row['own'] >= bar else 'MISSED'}"
    print(f"  {row['product']:24} {row['own']:6.0f} {row['blas']:6.0f}{met}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--isa", choices=kernels.isa_names(), default=kernels.isa_names()[0])
    parser.add_argument("--rounds", type=int, default=5, help="turns that own code and BLAS take")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/kernels-ISA.json")
    args = parser.parse_args()
    restart_with_fair_blas()
    with threadpool_limits(1):
        peak = sgemm_peak()
        print(f"{args.isa}, one thread; BLAS ({blas_architecture()}) at its best: {peak:.0f} GFLOP/s")
        print("  products, GFLOP/s           own   BLAS")
        forward = products(args.isa, args.rounds)
        print("  weight gradients            own   BLAS")
        backward = gradients(args.isa, args.rounds)
        peak = max(peak, sgemm_peak())
    updates = {
        name: 1e6 * kernels.time_update(args.isa, name, 300, 750, 100)
        for name in ("sgd", "momentum", "adagrad", "adam")
    }
    transpose = 1e6 * kernels.time_transpose(args.isa, 300, 750, 100)
    print(
        "  us for 300 x 750:",
        ", ".join(f"{k} {v:.0f}" for k, v in updates.items()),
        f"transpose {transpose:.0f}",
    )
    operations = {op: 1e9 * kernels.time_rows(args.isa, op, 16, 150, 100) / 16 for op in OPERATIONS}
    print("  ns for a row of 150:", ", ".join(f"{k} {v:.1f}" for k, v in operations.items()))
    record = {
        "date": date.today().isoformat(),
        "environment": environment(),
        "isa": args.isa,
        "blas": blas_architecture(),
        "blas_peak_gflops": peak,
        "products_gflops": forward,
        "gradients_gflops": backward,
        "update_us": updates,
        "transpose_us": transpose,
        "operation_ns": operations,
    }
    RESULTS.mkdir(exist_ok=True)
    out = args.out or RESULTS / f"kernels-{args.isa}.json"
    out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"written to {out}")


if __name__ == "__main__":
    main()
