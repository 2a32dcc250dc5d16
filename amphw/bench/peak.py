"""The sgemm peak of the machine: large single-precision products, one BLAS thread on every processor.

Or on some of them, as `threads` of a request says: how a machine scales where nothing is shared but caches,
memory and clocks.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from amphw.bench.serving import Channel, Handler, serve

SIZE = 2048
"""Rows and columns: large enough that a product runs at the peak, small enough to fit the cache's levels."""


def main() -> None:
    serve(begin)


def begin(channel: Channel) -> tuple[Mapping[str, Any], dict[str, Handler]]:
    threadpool_limits(limits=1)
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    rng = np.random.default_rng(0)
    operands = [[rng.random((SIZE, SIZE), dtype=np.float32) for _ in range(3)] for _ in range(threads)]
    products(operands, 0.2)

    def run(request: dict[str, Any]) -> dict[str, Any]:
        return products(operands[: int(request.get("threads", threads))], float(request["seconds"]))

    return {"threads": threads}, {"run": run}


def products(operands: list[list[np.ndarray]], seconds: float) -> dict[str, Any]:
    """Multiply for `seconds` in as many threads as there are operands -> count: operations."""
    done = [0] * len(operands)
    cpu, began = time.process_time(), time.perf_counter()

    def work(number: int) -> None:
        a, b, out = operands[number]
        while time.perf_counter() - began < seconds:
            np.matmul(a, b, out=out)
            done[number] += 1

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(operands))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - began
    side = operands[0][0].shape[0]
    return {"count": 2.0 * side**3 * sum(done), "seconds": elapsed, "cpu": time.process_time() - cpu}


if __name__ == "__main__":
    main()
