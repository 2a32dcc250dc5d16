"""One BLAS thread for the whole process.

Frames are what runs in parallel here. A BLAS with threads of its own, called from several workers at once,
fights them for the cores and can be an order of magnitude slower.
"""

from __future__ import annotations


def pin_blas() -> None:
    """Limit BLAS and OpenMP pools to one thread, for good. To be called before any numpy work."""
    import numpy  # noqa: F401  # a pool can be limited only after its library is loaded
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    from amphw.cli.memory import take_blas_buffers

    threadpool_limits(limits=1)
    take_blas_buffers()
