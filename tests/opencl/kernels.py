"""A device to run generated kernels on, and an arena to lay their rows out in."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from amphw.opencl import abi
from amphw.opencl.codegen.forms import Form, ProductForm
from amphw.opencl.layout import Layout
from tests.opencl.devices import BASIC

PLAIN = Form(product=ProductForm(rows=4, vectors=2))
PANELS = Form(product=ProductForm(rows=4, vectors=2, tiles=3), panels=True)
LOCAL = Form(vector=1, lanes=4, product=ProductForm(rows=2, vectors=3, local=True, group=4, depth=8))
SINGLE = Form(vector=4, product=ProductForm(rows=3, vectors=1))
SCALAR = Form(vector=1, product=ProductForm(rows=2, vectors=2))


class Arena:
    """Words of 4 bytes, handed out one piece after the other; NaN where nothing has been put."""

    def __init__(self, words: int = 1 << 20):
        self.words = np.full(words, np.nan, np.float32)
        self.used = 64

    def put(self, values: np.ndarray) -> int:
        """Copy values -> the place of the first, on a cache line."""
        flat = np.ascontiguousarray(values).view(np.float32).ravel()
        at = self.used
        self.words[at : at + flat.size] = flat
        self.used = abi.rounded(at + flat.size, 16)
        assert self.used < self.words.size
        return at

    def rows(self, values: np.ndarray, order: Sequence[int] | None = None) -> tuple[int, np.ndarray]:
        """Rows that lie in another order than they are numbered -> (place of their table, place of each)."""
        count, width = values.shape
        stride = abi.row_stride(width)
        laid = np.full((max(count, 1), stride), np.nan, np.float32)
        order = np.arange(count) if order is None else np.asarray(order, int)
        laid[order, :width] = values
        places = (self.put(laid) + order * stride).astype(np.int32)
        return self.put(places if count else np.zeros(1, np.int32)), places

    def log(self, values: np.ndarray) -> int:
        """Rows of a log, one after the other."""
        laid = np.full((len(values), abi.row_stride(values.shape[1])), np.nan, np.float32)
        laid[:, : values.shape[1]] = values
        return self.put(laid)


class Machine:
    """One device with a queue. Buffers that were handed to a kernel are kept."""

    def __init__(self) -> None:
        import pyopencl as cl

        from amphw.opencl.platform import platforms

        self.cl = cl
        found = platforms.choose(BASIC)[0]
        platforms.check_usable(found)
        self.context = cl.Context([found.handle])
        self.queue = cl.CommandQueue(self.context)
        self.device = found

    def build(self, form: Form, kernels: Sequence[abi.Kernel]) -> dict[str, Any]:
        """Compile kernels in one program -> by name."""
        from amphw.opencl.codegen.prelude import prelude

        text = prelude(form) + "\n".join(kernel.text for kernel in kernels)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compilers talk on success, too
            program = self.cl.Program(self.context, text).build(["-cl-mad-enable"])
        return {kernel.name: self.cl.Kernel(program, kernel.name) for kernel in kernels}

    def buffer(self, array: np.ndarray) -> Any:
        flags = self.cl.mem_flags
        return self.cl.Buffer(self.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=array)

    def run(
        self,
        program: dict[str, Any],
        kernel: abi.Kernel,
        arena: np.ndarray,
        job: int,
        arrays: dict[str, np.ndarray],
        faults: np.ndarray,
        rows: Sequence[int],
    ) -> None:
        """Run one kernel; everything that it may have changed is copied back in place."""
        cl = self.cl
        hosts = [arena, faults, *(arrays[name] for name in kernel.buffers)]
        buffers = [self.buffer(host) for host in hosts]
        made = program[kernel.name]
        made.set_args(buffers[0], np.int32(job), *buffers[1:])
        size = kernel.global_size(rows, 1)
        if all(size):
            cl.enqueue_nd_range_kernel(self.queue, made, size, kernel.local_size)
        for host, buffer in zip(hosts, buffers, strict=True):
            cl.enqueue_copy(self.queue, host, buffer)
        self.queue.finish()


def padded(values: np.ndarray, panel: int = 0) -> np.ndarray:
    """A parameter as it lies in memory, or a matrix in panels of so many columns."""
    rows, columns = values.shape if values.ndim == 2 else (0, len(values))
    return Layout(rows, columns, panel if rows else 0).packed(values)
