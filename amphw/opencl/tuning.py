"""Which form of a product a device likes: measured once, and remembered.

Candidates are few and known to be good on some device, so a search takes about a second: for matrices that
fit a core's caches and for larger ones, at the first matrix of each, by the number of a frame's rows. It ends
when its time is up, the likeliest candidates first; what was not measured stays as the first of them is.

Results are kept below the cache folder, by device, driver and version of the generated text. A file that
cannot be read is measured again, one that cannot be written is not kept; both are said once, as a warning.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import warnings
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from amphw.engine.tiles.code import Base, Code, Phase, PhaseKind, Place, Ref, Segment, Term, TiledUnit
from amphw.opencl import abi
from amphw.opencl.codegen.forms import Form, ProductForm
from amphw.opencl.codegen.gradient import gradient_kernels
from amphw.opencl.codegen.prelude import prelude
from amphw.opencl.codegen.product import product_kernel
from amphw.opencl.codegen.product_local import local_floats
from amphw.opencl.codegen.whole import whole_kernel
from amphw.opencl.layout import Layout
from amphw.opencl.platform.platforms import Found

GENERATOR = "3"
"""Version of the generated text: what was measured with another one is measured again."""

HEIGHTS = (1, 8, 32, 100)
"""Rows at which the classes of heights are measured: 1, up to 8, up to 32, and more."""

SECONDS = 0.4
"""After which no other candidate is begun, for each of the two sizes."""

TILES = 8
"""Tiles that a work-item of a CPU computes for each row of W that it reads."""

_SIZES = {"small": (128, 128), "large": (384, 512)}
_SMALL = 256 * 128  # elements
_LOG_ROWS = 128  # at which gradients are measured
_STRETCH, _REPEATS = 2e-4, 5


@dataclass(frozen=True)
class Forms:
    """products: by class of height (`height_class`). gradient: of matrices' gradients. apart: by class of
    height, whether phases with such a product are better launched one by one than all together."""

    products: tuple[Form, ...]
    gradient: Form
    apart: tuple[bool, ...] = (False,) * len(HEIGHTS)


def height_class(rows: int) -> int:
    """Which of the four classes a frame of so many rows is of."""
    return bisect_left(HEIGHTS, rows, hi=len(HEIGHTS) - 1)


def size_class(depth: int, width: int) -> str:
    """Whether a matrix [depth, width] counts as "small" or "large"."""
    return "small" if depth * width <= _SMALL else "large"


@dataclass(frozen=True)
class Candidates:
    """What may be the best for single rows, for more rows, and for gradients; the likeliest first."""

    single: list[Form]
    more: list[Form]
    gradient: list[Form]

    def of(self, height: int) -> list[Form]:
        return self.more if height else self.single


def candidates(device: Found, base: Form) -> Candidates:
    """The forms that are tried on a device."""

    def tiles(*shapes: tuple[int, int]) -> list[Form]:
        return [
            replace(base, product=ProductForm(rows=r, vectors=v, tiles=TILES if r > 1 else 1))
            for r, v in shapes
        ]

    def local(*shapes: tuple[int, int, int, int]) -> list[Form]:
        single = replace(base, vector=1, panels=False)
        forms = [replace(single, product=ProductForm(r, v, True, g, d)) for r, v, g, d in shapes]
        return [form for form in forms if fits(device, form)]

    if device.kind == "cpu":
        # 6 x 1 fits 16 registers of half a vector each, the others 32 of a whole one.
        few, many = [(6, 1)], [(8, 3), (10, 2), (8, 2)]
        wide = device.handle.native_vector_width_float >= base.vector
        return Candidates(
            tiles((1, 4), (1, 8), (1, 16)),
            tiles(*(many + few if wide else few + many)),
            tiles(*([(6, 4), (8, 2), (6, 1)] if wide else [(6, 1), (6, 4)])),
        )
    alone = [replace(base, vector=4, lanes=1, product=ProductForm(rows=4, vectors=1))]
    lanes = min(base.lanes, max(1, device.largest_group))
    return Candidates(
        local((1, 4, 8, 32), (1, 4, 16, 16)) or alone,
        local((4, 4, 16, 16), (2, 4, 16, 16), (4, 4, 8, 16), (8, 4, 16, 8)) or alone,
        [replace(base, vector=1, lanes=lanes, product=ProductForm(rows=r)) for r in (8, 4, 16)]
        if lanes > 1
        else alone,
    )


def fits(device: Found, form: Form) -> bool:
    """Whether the device's work-groups and local memory are large enough for a form's products."""
    shape = form.product
    if not shape.local:
        return True
    return shape.group**2 <= device.largest_group and 4 * local_floats(form) <= device.local_memory


class Tuner:
    """Finds the forms of one device's products. base: its form otherwise; path: of the file."""

    def __init__(self, device: Found, base: Form, path: Path | None = None):
        self.device, self.base, self.path = device, base, path or cache_file()
        self._known: dict[str, Forms] = {}
        self._notes: list[str] = []

    @property
    def notes(self) -> Sequence[str]:
        """What was wrong with the file, if anything."""
        return self._notes

    def forms(self, depth: int, width: int) -> Forms:
        """The forms of products with a matrix [depth, width], and of its gradient."""
        size = size_class(depth, width)
        if size not in self._known:
            found = self._kept(size)
            if found is None:
                found = search(self.device, self.base, size)
                self._keep(size, found)
            self._known[size] = found
        return self._known[size]

    # --- the file -------------------------------------------------------------------------------------------

    def _key(self, size: str) -> str:
        d = self.device
        return f"{d.platform}, {d.platform_version}, {d.name}, {d.driver}, {GENERATOR}: {size}"

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                raise ValueError("it is not an object")
            return found
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            self._note(f"the measured forms of OpenCL kernels in {self.path} cannot be read ({error}): again")
            return {}

    def _kept(self, size: str) -> Forms | None:
        entry = self._read().get(self._key(size))
        if entry is None:
            return None
        try:
            products = tuple(_form(each) for each in entry["products"])
            found = Forms(products, _form(entry["gradient"]), tuple(entry["apart"]))
            if len(found.products) != len(HEIGHTS) or len(found.apart) != len(HEIGHTS):
                raise ValueError("there is not one form a class of heights")
            if not all(isinstance(each, bool) for each in found.apart):
                raise ValueError("whether phases are launched apart is not said")
            if not all(fits(self.device, form) for form in found.products):
                raise ValueError("a form is too large for the device")
            return found
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self._note(f"an entry in {self.path} is damaged ({error}): it is measured again")
            return None

    def _keep(self, size: str, found: Forms) -> None:
        known = self._read()  # again: another process may have added its own meanwhile
        known[self._key(size)] = asdict(found)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=self.path.stem, suffix=".tmp", dir=self.path.parent)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(known, file, indent=1, sort_keys=True)
                os.replace(name, self.path)
            except OSError:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            self._note(
                f"OpenCL kernels are measured in every process: {self.path} cannot be written "
                f"({error.strerror}). Set AMPHW_CACHE to a folder that can."
            )

    def _note(self, text: str) -> None:
        if not self._notes:  # one is enough to know that the file is of no use
            warnings.warn(text, RuntimeWarning, stacklevel=4)
        self._notes.append(text)


def cache_file() -> Path:
    configured = os.environ.get("AMPHW_CACHE")
    root = Path(configured).expanduser() if configured else Path.home() / ".cache" / "amphw"
    return root / "opencl-forms.json"


def _form(entry: Mapping[str, Any]) -> Form:
    """A form from the file. Raises ValueError and its like where it makes no sense."""
    shape = ProductForm(**entry["product"])
    form = Form(**{**entry, "product": shape})
    numbers = (form.lanes, form.rows_per_item, shape.rows, shape.vectors, shape.group, shape.depth)
    choices = (shape.local, form.panels)
    if form.vector not in (1, 2, 4, 8, 16) or not all(isinstance(each, bool) for each in choices):
        raise ValueError("there is no such vector type")
    if any(type(n) is not int or not 1 <= n <= 256 for n in (*numbers, shape.tiles)) or (
        shape.local and form.vector > 1
    ):
        raise ValueError("a number is not possible")
    return form


# --- measuring ----------------------------------------------------------------------------------------------


def search(device: Found, base: Form, size: str, seconds: float = SECONDS) -> Forms:
    """Measure until the time is up -> the fastest forms for matrices of a size.

    Compiling is what takes the time, so what has been compiled is measured at all heights that it is for.
    """
    end = time.perf_counter() + seconds
    among = candidates(device, base)
    classes = len(HEIGHTS)  # and behind them, gradients
    best = [among.of(height)[0] for height in range(classes)] + [among.gradient[0]]
    least = [float("inf")] * len(best)
    trial = _Trial(device, *_SIZES[size])
    for rank in range(max(len(among.single), len(among.more), len(among.gradient))):
        for forms, heights in ((among.more, (1, 2, 3)), (among.single, (0,)), (among.gradient, (classes,))):
            if rank >= len(forms) or len(forms) == 1 or time.perf_counter() > end:
                continue
            form, kernel = forms[rank], None
            for place in heights:
                gradient = place == classes
                kernel = kernel or (trial.gradient(form) if gradient else trial.product(form))
                took = kernel(_LOG_ROWS if gradient else HEIGHTS[place])
                if took < least[place]:
                    best[place], least[place] = form, took
    found = Forms(tuple(best[:-1]), best[-1])
    if base.lanes > 1 or any(form.product.local for form in found.products) or min(least) == float("inf"):
        return found
    together = trial.together(found.products)
    return replace(found, apart=tuple(together(n) > 2 * least[k] for k, n in enumerate(HEIGHTS)))


class _Trial:
    """A layer's rows and parameters on a device, to time kernels with."""

    def __init__(self, device: Found, depth: int, width: int):
        import pyopencl as cl

        self.cl, self.depth, self.width = cl, depth, width
        self.context = cl.Context([device.handle])
        self.queue = cl.CommandQueue(self.context)
        rows = max(*HEIGHTS, _LOG_ROWS)
        strides = (abi.row_stride(depth), abi.row_stride(width))
        # The header of a frame, that of a log job behind it, tables, rows of x and of d.
        self.frame, self.job, tables = 64, 192, 320
        x = abi.rounded(tables + 2 * rows, 64)
        d = x + rows * strides[0]
        arena = np.zeros(d + rows * strides[1], np.int32)
        arena[tables : tables + rows] = x + np.arange(rows) * strides[0]
        arena[tables + rows : tables + 2 * rows] = d + np.arange(rows) * strides[1]
        arena[self.frame + abi.TABLES : self.frame + abi.TABLES + 2] = tables, tables + rows
        arena[self.job + abi.LOG_ROWS] = _LOG_ROWS
        arena[self.job + abi.LOG_BUFFERS : self.job + abi.LOG_BUFFERS + 2] = x, d
        arena[x:] = np.full(arena.size - x, 0.5, np.float32).view(np.int32)
        self.words = arena
        self.arena, self.faults = (self._buffer(a) for a in (arena, np.zeros(16, np.int32)))
        self._weights: dict[Layout, Any] = {}

    def _buffer(self, array: np.ndarray) -> Any:
        flags = self.cl.mem_flags
        return self.cl.Buffer(self.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=array)

    def _layout(self, form: Form) -> Layout:
        return Layout(self.depth, self.width, form.panel)

    def product(self, form: Form) -> Callable[[int], float]:
        """A product -> its seconds by number of rows."""
        return self._timed(self._product("trial", form), form, self.frame)

    def together(self, forms: Sequence[Form]) -> Callable[[int], float]:
        """Two products in one launch, each in the form for the height -> their seconds by number of rows."""
        named = {form: f"trial_{n}" for n, form in enumerate(dict.fromkeys(forms))}
        made = {form: self._product(name, form) for form, name in named.items()}
        phase = tuple(made[form] for form in forms)
        kernel = whole_kernel("trial", self._code(), [phase, phase], HEIGHTS, "a trial")
        assert kernel is not None
        return self._timed(kernel, forms[0], self.frame)

    def _product(self, name: str, form: Form) -> abi.Kernel:
        code = self._code()
        return product_kernel(name, code, code.phases[0], form, None, "a trial", {0: self._layout(form)})

    def _code(self) -> Code:
        bases = (Base(Place.Operand, 0, self.depth, 0), Base(Place.Output, 0, self.width, 0))
        segment = Segment(Ref(0), self.depth)
        phase = Phase(PhaseKind.Gemm, param=0, a=(segment,), d=Ref(1), width=self.width)
        return Code(bases, (), (), (phase,))

    def gradient(self, form: Form) -> Callable[[int], float]:
        """A gradient -> its seconds by number of rows in the log."""
        nothing = Code((), (), (), ())
        buffers = ((self.depth, 0), (self.width, 0))
        unit = TiledUnit(("rows",), (), nothing, nothing, None, buffers, (), (Term("matmul", 0, 0, 1),))
        (kernel,) = gradient_kernels("trial", unit, form, {0: self._layout(form)}, ())
        return self._timed(kernel, form, self.job)

    def _timed(self, kernel: abi.Kernel, form: Form, job: int) -> Callable[[int], float]:
        cl = self.cl
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # compilers talk on success, too
                program = cl.Program(self.context, prelude(form) + kernel.text).build(["-cl-mad-enable"])
            made = cl.Kernel(program, kernel.name)
            layout = self._layout(form)
            if layout not in self._weights:
                self._weights[layout] = self._buffer(np.zeros(layout.shape, np.float32))
            made.set_args(self.arena, np.int32(job), self.faults, self._weights[layout])
        except cl.Error:
            return lambda rows: float("inf")  # a form that the device cannot run is none

        def seconds(rows: int) -> float:
            # Headers of frames and of log jobs have the rows of their spaces in different words.
            self.words[self.frame + abi.ROWS] = self.words[self.job + abi.LOG_ROWS] = rows
            cl.enqueue_copy(self.queue, self.arena, self.words)
            size = kernel.global_size([rows], 1)

            def run(repeats: int) -> float:
                began = time.perf_counter()
                for _ in range(repeats):
                    cl.enqueue_nd_range_kernel(self.queue, made, size, kernel.local_size)
                self.queue.finish()
                return (time.perf_counter() - began) / repeats

            try:
                run(1)  # compiles
                repeats = max(1, round(_STRETCH / max(run(1), 1e-7)))
                return min(run(repeats) for _ in range(_REPEATS))
            except cl.Error:
                return float("inf")

        return seconds
