"""The peaks of the machine: large single-precision products, one BLAS thread on every processor, and copying.

Or on some of them, as `threads` of a request says: how a machine scales where nothing is shared but caches,
memory and clocks, and how much goes through its memory.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from amphw.bench.serving import Channel, Handler, serve

SIZE = 2048
"""Rows and columns: large enough that a product runs at the peak, small enough to fit the cache's levels."""

COPIED = 8 << 20
"""Numbers that are copied from one array to another, 32 MB: more than a processor's share of any cache."""


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

    def copy(request: dict[str, Any]) -> dict[str, Any]:
        while len(blocks) < int(request["threads"]):
            blocks.append([np.ones(COPIED, np.float32) for _ in range(2)])
        return copies(blocks[: int(request["threads"])], float(request["seconds"]))

    blocks: list[list[np.ndarray]] = []
    return {"threads": threads}, {"run": run, "copy": copy}


def products(operands: list[list[np.ndarray]], seconds: float) -> dict[str, Any]:
    """Multiply for `seconds` in as many threads as there are operands -> count: operations."""
    side = operands[0][0].shape[0]
    return _together(lambda a, b, out: np.matmul(a, b, out=out), operands, seconds, 2.0 * side**3)


def copies(blocks: list[list[np.ndarray]], seconds: float) -> dict[str, Any]:
    """Copy for `seconds` in as many threads as there are pairs of arrays -> count: bytes read and written."""
    return _together(np.copyto, blocks, seconds, 2.0 * blocks[0][0].nbytes)


def _together(
    once: Callable[..., Any], operands: list[list[np.ndarray]], seconds: float, count: float
) -> dict[str, Any]:
    """count: that `once` stands for."""
    done = [0] * len(operands)
    cpu, began = time.process_time(), time.perf_counter()

    def work(number: int) -> None:
        while time.perf_counter() - began < seconds:
            once(*operands[number])
            done[number] += 1

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(operands))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - began
    return {"count": count * sum(done), "seconds": elapsed, "cpu": time.process_time() - cpu}


if __name__ == "__main__":
    main()
