"""What a record says of the processor: which it is, how wide its vectors are, and what it can do at most."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

from amphw.bench.sides import processors
from amphw.host.run_folder import named_processor, processor_flags

_SECONDS, _WINDOWS = 0.03, 5
_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}


@lru_cache(maxsize=1)
def processor() -> dict[str, Any]:
    """The record's `processor`, measured once in a process, in 0.3 s.

    name, family, model: as the system tells them, null where it does not. vector_bits: of the widest vectors
    that are multiplied. bf16: whether it has instructions for bfloat16. fma_gflops: billions of
    floating-point operations a second that fused multiply-adds reach on one core (`one`), and on all that
    this process may use at the same time (`all`); both null without the C++ data plane.
    """
    cpu = named_processor()
    told = {"name": cpu["name"], "family": cpu.get("family"), "model": cpu.get("model")}
    try:
        from amphw.engine._native import peak
    except ImportError:
        return {**told, "vector_bits": None, "bf16": multiplies_bfloat16(), "fma_gflops": _gflops(None, None)}
    return {
        **told,
        "vector_bits": 32 * peak.width(),
        "bf16": multiplies_bfloat16(),
        "fma_gflops": _gflops(_fused(peak, 1), _fused(peak, processors())),
    }


def multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for products of bfloat16 numbers, as Linux tells."""
    return bool(_BFLOAT16 & processor_flags())


def _fused(peak: Any, threads: int) -> float:
    """Operations a second of so many threads together, in the best of some windows."""
    return max(_together(peak, threads) for _ in range(_WINDOWS))


def _together(peak: Any, threads: int) -> float:
    rates: list[float] = []
    all_there = threading.Barrier(threads)

    def run() -> None:
        all_there.wait()
        rates.append(peak.fused(_SECONDS))

    started = [threading.Thread(target=run) for _ in range(threads)]
    for each in started:
        each.start()
    for each in started:
        each.join()
    return sum(rates)


def _gflops(one: float | None, all_: float | None) -> dict[str, float | None]:
    return {"one": one and one / 1e9, "all": all_ and all_ / 1e9}
