"""Which products a BLAS library computes: measured once per machine and shape, and remembered.

The own kernels read their operands in place and are made for frames of few rows; a library may still win
where they have no tuned instruction set, or for matrices much larger than the caches. How many rows frames
will have nobody knows beforehand, so both are measured with few and with many. `device.gemm` is "auto" for
what was measured, "own" or "blas".
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amphw.engine import _native
from amphw.ir.errors import AmphwError

CHOICES = ("auto", "own", "blas")
_ROWS = (4, 16, 64)
"""Of frames: a library copies the matrix for each, which costs as much as the products of about ten rows."""
_LOG_ROWS, _ROUNDS, _REPEATS = 256, 5, 3
_ENOUGH_S = 0.1
"""Of measuring a large matrix: no further round then."""
_CLEARLY = 0.9
"""The share of the own kernels' time from which the library counts as faster: others may have used the
processor meanwhile, and on the own kernels a row's result does not depend on the frame that it came in."""
_METHOD = "3:"  # of measuring: what another one found is measured again
_SMALL = 64 * 64
"""Elements below which a call costs as much as the product: the own kernels, without measuring."""


def load_blas() -> bool:
    """Hand the engine the library's sgemm -> whether there is one."""
    if _native.has_blas():
        return True
    try:
        import scipy_openblas32  # type: ignore[import-untyped]
    except ImportError:
        return False
    folder = Path(scipy_openblas32.get_lib_dir())
    found = sorted(p for p in folder.iterdir() if p.suffix in {".so", ".dylib", ".dll"})
    if not found:
        return False
    library = ctypes.CDLL(str(found[0]))
    library.scipy_openblas_set_num_threads(1)  # frames are the parallelism
    address = ctypes.cast(library.scipy_cblas_sgemm, ctypes.c_void_p).value
    _native.set_blas(address)
    _keep.append(library)
    return True


_keep: list[Any] = []  # the engine holds an address inside


class GemmChoice:
    """Decides for one device; remembers in `path` (default: the user's cache folder)."""

    def __init__(self, wanted: str, path: Path | None = None):
        if wanted not in CHOICES:
            raise AmphwError(f"device.gemm = '{wanted}', allowed is {', '.join(CHOICES)}")
        self.wanted, self.path = wanted, path or _cache()
        if wanted == "blas" and not load_blas():
            raise AmphwError("device.gemm = 'blas', but the package scipy-openblas32 is not installed")

    def use_blas(self, rows: int, cols: int) -> bool:
        """Whether products with a matrix [rows, cols] go to the library."""
        if self.wanted != "auto":
            return self.wanted == "blas"
        if rows * cols < _SMALL or not load_blas():
            return False
        known = _read(self.path)
        key = f"{_METHOD} {platform.machine()} {_processor()} {_native.kernels.chosen()} {rows}x{cols}"
        if key not in known:
            known[key] = _measured(rows, cols)
            _write(self.path, known)
        seconds = known[key]
        return bool(seconds["blas"] < _CLEARLY * seconds["own"])


def _measured(rows: int, cols: int) -> dict[str, float]:
    """Seconds for a row of frames: forward, backward, and its share of the gradient; the mean of `_ROWS`.

    The two take turns, and the least of the rounds counts, so that what else the machine does meanwhile
    meets both.
    """
    k, isa = _native.kernels, _native.kernels.chosen()
    least: dict[tuple[str, int], float] = {}

    def note(whose: str, count: int, seconds: float) -> None:
        least[whose, count] = min(least.get((whose, count), seconds), seconds)

    began = time.perf_counter()
    for number in range(_ROUNDS):
        if number and time.perf_counter() - began > _ENOUGH_S:
            break
        for count in _ROWS:
            # The own kernels multiply by a transposed copy, the library by the matrix itself, transposed.
            own = k.time_gemm(isa, count, rows, cols, _REPEATS) + k.time_gemm(
                isa, count, cols, rows, _REPEATS
            )
            note("own", count, own)
            blas = _native.time_blas_gemm(count, rows, cols, _REPEATS, False)
            note("blas", count, blas + _native.time_blas_gemm(count, cols, rows, _REPEATS, True))
        note("own", 0, k.time_gradient(isa, _LOG_ROWS, rows, cols, _REPEATS))
        note("blas", 0, _native.time_blas_gradient(_LOG_ROWS, rows, cols, _REPEATS))
    return {
        whose: least[whose, 0] / _LOG_ROWS + sum(least[whose, count] / count for count in _ROWS) / len(_ROWS)
        for whose in ("own", "blas")
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    fields = dict(line.split(":", 1) for line in lines[:30] if ":" in line)
    wanted = ("vendor_id", "cpu family", "model", "stepping", "model name")
    named = {name.strip(): value.strip() for name, value in fields.items()}
    return " ".join(named.get(name, "") for name in wanted)


def _cache() -> Path:
    configured = os.environ.get("AMPHW_CACHE")
    root = Path(configured).expanduser() if configured else Path.home() / ".cache" / "amphw"
    return root / "gemm.json"


def _read(path: Path) -> dict[str, Mapping[str, float]]:
    try:
        found = json.loads(path.read_text())
        return {str(k): {"own": float(v["own"]), "blas": float(v["blas"])} for k, v in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # measured again


def _write(path: Path, known: Mapping[str, Mapping[str, float]]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(known, indent=1, sort_keys=True))
        fresh.replace(path)
    except OSError:
        pass  # a cache that cannot be written is only slower
