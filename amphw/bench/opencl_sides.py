"""Both sides of `bench.opencl`: a layer as generated kernels, and as calls of OpenBLAS."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from amphw.bench.errors import BenchError
from amphw.engine.tiles.code import Base, Code, Phase, PhaseKind, Place, Ref, Segment, Term, TiledUnit
from amphw.opencl import abi
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.gradient import gradient_kernels
from amphw.opencl.codegen.prelude import prelude
from amphw.opencl.codegen.product import product_kernel
from amphw.opencl.layout import Layout
from amphw.opencl.platform import platforms
from amphw.opencl.tuning import Tuner, height_class

Run = Callable[[], None]
_HEADER = 64  # words


@dataclass
class Layer:
    """Ready to run. ours: forward and backward; form: rows x vectors of the kernels' tiles.

    openblas: for forward, dX and the gradients, the ways to compute them by name.
    """

    ours: Run
    form: str
    openblas: tuple[dict[str, Run], ...]


class Machine:
    """PoCL's `basic` device and the BLAS libraries of this process."""

    def __init__(self) -> None:
        import pyopencl as cl
        from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

        self.cl = cl
        found = [each for each in platforms.found() if each.pocl]
        if not found:
            raise BenchError("there is no PoCL device, beside whose one thread OpenBLAS could be measured")
        self.device = found[0]
        platforms.check_usable(self.device)
        self.context = cl.Context([self.device.handle])
        self.queue = cl.CommandQueue(self.context)
        self.tuner = Tuner(self.device, platforms.default_form(self.device))
        self.sgemm = _sgemm()
        blas = [info for info in threadpool_info() if info["user_api"] == "blas"]
        self.sides = {
            "device": self.device.name,
            "driver": self.device.platform_version,
            "numpy": np.__version__,
            "openblas": [f"{info['version']} {info.get('architecture', '')}".strip() for info in blas],
        }

    def layer(self, k: int, din: int, dout: int) -> Layer:
        """A layer of random numbers; both sides are compared before anything is measured."""
        rng = np.random.default_rng([k, din, dout])
        x, w, b, dy = (
            rng.standard_normal(shape).astype(np.float32)
            for shape in ((k, din), (din, dout), (dout,), (k, dout))
        )
        ours = _Ours(self, x, w, b, dy)
        results, openblas = _openblas(self.sgemm, x, w, b, dy)
        ours.run()
        expected = (x @ w + b, dy @ w.T, x.T @ dy, dy.sum(axis=0))
        wanted = dict(zip(results, expected, strict=True))
        for name, found in zip(wanted, ours.results(), strict=True):
            _same(f"our {name} of {k} x {din} x {dout}", found, wanted[name])
        for name, forms in zip(("Y", "dX", "dW"), openblas, strict=True):
            for form, run in forms.items():
                for array in results.values():
                    array[...] = 0
                run()
                _same(
                    f"OpenBLAS's {name} ({form})",
                    results[name],
                    dict(zip(results, expected, strict=True))[name],
                )
        return Layer(ours.run, ours.form, openblas)


def _same(what: str, found: np.ndarray, wanted: np.ndarray) -> None:
    error = float(np.abs(found - wanted).max() / max(float(np.abs(wanted).max()), 1e-6))
    if not error < 1e-4:
        raise BenchError(f"{what} differs from numpy's by {error:.1e} of its largest value")


class _Ours:
    """The layer's three kernels over an arena, with their arguments set."""

    def __init__(self, machine: Machine, x: np.ndarray, w: np.ndarray, b: np.ndarray, dy: np.ndarray):
        self.machine, self.shape = machine, (*x.shape, w.shape[1])
        k, din, dout = self.shape
        self.x_stride, self.y_stride = abi.row_stride(din), abi.row_stride(dout)
        tables = 2 * _HEADER
        self.places = {}
        at = abi.rounded(tables + 4 * k, 32)
        for name, stride in (
            ("x", self.x_stride),
            ("y", self.y_stride),
            ("dy", self.y_stride),
            ("dx", self.x_stride),
        ):
            self.places[name], at = at, at + abi.rounded(k * stride, 32)
        arena = np.zeros(at, np.float32)
        words = arena.view(np.int32)
        words[abi.ROWS] = words[_HEADER + abi.LOG_ROWS] = k
        for number, (name, place) in enumerate(self.places.items()):
            stride = self.x_stride if name in ("x", "dx") else self.y_stride
            words[abi.TABLES + number] = tables + number * k
            words[tables + number * k : tables + (number + 1) * k] = place + np.arange(k) * stride
        words[_HEADER + abi.LOG_BUFFERS] = self.places["x"]
        words[_HEADER + abi.LOG_BUFFERS + 1] = self.places["dy"]
        self._rows(arena, "x", self.x_stride)[:, :din] = x
        self._rows(arena, "dy", self.y_stride)[:, :dout] = dy
        self.arena = arena
        self.buffers = {
            "arena": self._buffer(arena),
            "faults": self._buffer(np.zeros(16, np.int32)),
            "p0": self._parameter(w),
            "p0t": self._parameter(w.T),
            "p1": self._parameter(b),
            "g0": self._parameter(np.zeros_like(w)),
            "g1": self._parameter(np.zeros_like(b)),
        }
        kernels = self._kernels()
        cl = machine.cl
        self.launches = []
        for kernel, form, job in kernels:
            program = cl.Program(machine.context, prelude(form) + kernel.text).build(["-cl-mad-enable"])
            made = cl.Kernel(program, kernel.name)
            made.set_args(
                self.buffers["arena"], np.int32(job), self.buffers["faults"],
                *(self.buffers[name] for name in kernel.buffers),
            )  # fmt: skip
            self.launches.append((made, kernel.global_size([k], 1), kernel.local_size))
        self.form = " ".join(f"{form.product.rows}x{form.product.vectors}" for _, form, _ in kernels)

    def _kernels(self) -> list[tuple[abi.Kernel, Form, int]]:
        k, din, dout = self.shape
        tuner, height = self.machine.tuner, height_class(k)
        forward, back, gradient = (
            tuner.forms(din, dout).products[height],
            tuner.forms(dout, din).products[height],
            tuner.forms(din, dout).gradient,
        )
        bases = (
            Base(Place.Operand, 0, din, 0),
            Base(Place.Output, 0, dout, 0),
            Base(Place.OutputGradient, 0, dout, 0),
            Base(Place.InputGradient, 0, din, 0),
        )
        phases = (
            Phase(PhaseKind.Gemm, param=0, bias=1, a=(Segment(Ref(0), din),), d=Ref(1), width=dout),
            Phase(PhaseKind.Gemm, param=0, transposed=True, a=(Segment(Ref(2), dout),), d=Ref(3), width=din),
        )
        code = Code(bases, (), (), phases)
        terms = (Term("matmul", 0, 0, 1), Term("sum", 1, -1, 1))
        unit = TiledUnit(("rows",), (), code, code, code, ((din, 0), (dout, 0)), (), terms)
        laid = {0: self._layout(din, dout)}
        (reduce,) = gradient_kernels("reduce", unit, gradient, laid, ())
        return [
            (product_kernel("forward", code, phases[0], forward, None, "y = x @ w + b", laid), forward, 0),
            (product_kernel("back", code, phases[1], back, None, "dx = dy @ w'"), back, 0),
            (reduce, gradient, _HEADER),
        ]

    def _buffer(self, array: np.ndarray) -> Any:
        flags = self.machine.cl.mem_flags
        array = np.ascontiguousarray(array)
        return self.machine.cl.Buffer(
            self.machine.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=array
        )

    def _parameter(self, values: np.ndarray) -> Any:
        rows, columns = values.shape if values.ndim == 2 else (1, len(values))
        return self._buffer(self._layout(rows, columns).packed(values))

    def _layout(self, rows: int, columns: int) -> Layout:
        return Layout(rows, columns, self.machine.tuner.base.panel if rows > 1 else 0)

    def _rows(self, arena: np.ndarray, name: str, stride: int) -> np.ndarray:
        k, place = self.shape[0], self.places[name]
        return arena[place : place + k * stride].reshape(k, stride)

    def run(self) -> None:
        """A forward frame; then a backward frame with the reduction of its log."""
        enqueue, queue = self.machine.cl.enqueue_nd_range_kernel, self.machine.queue
        (forward, size, local), *backward = self.launches
        enqueue(queue, forward, size, local)
        queue.finish()
        for kernel, size, local in backward:
            enqueue(queue, kernel, size, local)
        queue.finish()

    def results(self) -> tuple[np.ndarray, ...]:
        """Y, dX, and the gradients of one run."""
        cl, queue = self.machine.cl, self.machine.queue
        _, din, dout = self.shape
        arena = np.empty_like(self.arena)
        layout, bias_layout = self._layout(din, dout), self._layout(1, dout)
        gradient = np.empty(layout.shape, np.float32)
        bias = np.empty(bias_layout.shape, np.float32)
        for host, name in ((arena, "arena"), (gradient, "g0"), (bias, "g1")):
            cl.enqueue_copy(queue, host, self.buffers[name])
        y = self._rows(arena, "y", self.y_stride)[:, :dout]
        dx = self._rows(arena, "dx", self.x_stride)[:, :din]
        return y, dx, layout.unpacked(gradient), bias_layout.unpacked(bias)[0]


# --- OpenBLAS -----------------------------------------------------------------------------------------------


def _sgemm() -> Any:
    """cblas_sgemm of the package that the engine uses; numpy's own cannot be called."""
    import scipy_openblas32  # type: ignore[import-untyped]

    folder = Path(scipy_openblas32.get_lib_dir())
    library = ctypes.CDLL(
        str(next(p for p in sorted(folder.iterdir()) if p.suffix in {".so", ".dylib", ".dll"}))
    )
    library.scipy_openblas_set_num_threads(1)
    return library.scipy_cblas_sgemm


def _openblas(
    sgemm: Any, x: np.ndarray, w: np.ndarray, b: np.ndarray, dy: np.ndarray
) -> tuple[dict[str, np.ndarray], tuple[dict[str, Run], ...]]:
    """Results by name, and the ways to compute Y, dX, and dW with db."""
    k, (din, dout) = len(x), w.shape
    y, dx, dw, db = (np.zeros(shape, np.float32) for shape in ((k, dout), (k, din), (din, dout), (dout,)))
    product, ones, rows_sum = np.empty_like(dw), np.ones(k, np.float32), np.empty_like(db)
    wt, column = np.ascontiguousarray(w.T), np.ascontiguousarray(x.T)

    def forward() -> None:
        np.matmul(x, w, out=y)
        np.add(y, b, out=y)

    def back_view() -> None:
        np.matmul(dy, w.T, out=dx)

    def back_copy() -> None:
        np.matmul(dy, wt, out=dx)

    def add_bias() -> None:
        if k == 1:
            np.add(db, dy[0], out=db)
        else:
            np.matmul(ones, dy, out=rows_sum)
            np.add(db, rows_sum, out=db)

    def added_by_numpy() -> None:
        np.matmul(x.T, dy, out=product)
        np.add(dw, product, out=dw)
        add_bias()

    def multiplied() -> None:
        np.multiply(column, dy, out=product)
        np.add(dw, product, out=dw)
        add_bias()

    # Row-major, the first transposed, the second not; alpha = beta = 1. Converted once.
    c, pointer = ctypes.c_int, ctypes.c_void_p
    one = ctypes.c_float(1.0)
    arguments = (
        *(c(n) for n in (101, 112, 111, din, dout, k)), one, pointer(x.ctypes.data), c(din),
        pointer(dy.ctypes.data), c(dout), one, pointer(dw.ctypes.data), c(dout),
    )  # fmt: skip

    def added_by_blas() -> None:
        sgemm(*arguments)
        add_bias()

    gradients: dict[str, Run] = {"numpy adds": added_by_numpy, "sgemm adds": added_by_blas}
    if k == 1:
        gradients["outer product"] = multiplied
    results = {"Y": y, "dX": dx, "dW": dw, "db": db}
    return results, ({"matmul": forward}, {"W' a view": back_view, "W' a copy": back_copy}, gradients)
