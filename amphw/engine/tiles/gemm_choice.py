"""Which products a BLAS library computes: measured once per machine and shape, and remembered.

The own kernels read their operands in place and are made for frames of few rows; a library may still win
where they have no tuned instruction set, or for matrices much larger than the caches. How many rows frames
will have nobody knows beforehand, so both are measured with few and with many. `device.gemm` is "auto" for
what was measured, "own" or "blas". With `device.precision=bf16` all are the own kernels'.
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
PORTABLE = "AMPHW_BF16"
"""Set to `portable`: products of bfloat16 by kernels that need no instruction for them. They are slow, slower
than those of float32, and there for tests."""
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
    """Decides for one device; remembers in `path` (default: the user's cache folder). precision: of products.

    Raises AmphwError where this machine cannot multiply as is wanted.
    """

    def __init__(self, wanted: str, path: Path | None = None, precision: str = "float32"):
        if wanted not in CHOICES:
            raise AmphwError(f"device.gemm = '{wanted}', allowed is {', '.join(CHOICES)}")
        self.wanted, self.path, self.bf16 = wanted, path or _cache(), precision == "bf16"
        if self.bf16:
            _check_bf16(wanted)
            self.wanted = "own"
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


def _check_bf16(gemm: str) -> None:
    """Raise AmphwError where products of bfloat16 cannot be had, saying what is missing."""
    if gemm == "blas":
        raise AmphwError(
            "device.precision = 'bf16' with device.gemm = 'blas': a BLAS library has no such products; leave "
            "device.gemm at auto, or set it to own"
        )
    asked = os.environ.get(PORTABLE, "")
    if asked not in ("", "portable"):
        raise AmphwError(f"{PORTABLE}={asked}, allowed is portable, for tests, or nothing")
    if _native.kernels.bf16():
        return
    if platform.machine() not in ("x86_64", "AMD64"):
        why = f"{platform.machine()} has no AVX512-BF16, which the products need"
    elif _native.kernels.has_bf16():
        why = (
            f"AMPHW_ISA={os.environ.get('AMPHW_ISA')} chooses other kernels than those for AVX-512; unset it"
        )
    else:
        why = f"this processor{_model()} has no AVX512-BF16 (vdpbf16ps), which the products need"
    raise AmphwError(
        f"device.precision = 'bf16': {why}. Set device.precision=float32, or run where /proc/cpuinfo lists "
        "avx512_bf16: on AMD Zen 4, Intel Cooper Lake or Sapphire Rapids, or later ones"
    )


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
    named = _cpuinfo()
    wanted = ("vendor_id", "cpu family", "model", "stepping", "model name")
    return " ".join(named.get(name, "") for name in wanted) if named else platform.processor()


def _model() -> str:
    """The processor's name in brackets, behind a space; empty where the system does not say."""
    name = _cpuinfo().get("model name", "")
    return f" ({name})" if name else ""


def _cpuinfo() -> dict[str, str]:
    """What Linux says of the first processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in lines[:30] if ":" in line)
    return {name.strip(): value.strip() for name, value in fields.items()}


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
