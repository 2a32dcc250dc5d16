"""Which products a BLAS library computes: what is measured, and what is remembered of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("amphw.engine._native", reason="the C++ data plane is not built")
from amphw.engine import _native
from amphw.engine.tiles import gemm_choice
from amphw.engine.tiles.gemm_choice import GemmChoice, load_blas
from amphw.ir.errors import AmphwError

needs_blas = pytest.mark.skipif(not load_blas(), reason="needs the package scipy-openblas32")


def test_what_is_wanted_is_one_of_three(tmp_path: Path) -> None:
    with pytest.raises(AmphwError, match="^device.gemm = 'mkl', allowed is auto, own, blas$"):
        GemmChoice("mkl", tmp_path / "gemm.json")
    assert not GemmChoice("own", tmp_path / "gemm.json").use_blas(999, 999)


@needs_blas
@pytest.mark.parametrize("faster", ["own", "blas"])
def test_the_faster_one_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faster: str
) -> None:
    asked: list[tuple[int, int]] = []

    def measured(rows: int, cols: int) -> dict[str, float]:
        asked.append((rows, cols))
        return {"own": 2.0, "blas": 2.0} | {faster: 1.0}

    monkeypatch.setattr(gemm_choice, "_measured", measured)
    path = tmp_path / "cache" / "gemm.json"
    for _ in range(2):
        assert GemmChoice("auto", path).use_blas(100, 200) is (faster == "blas")
    assert asked == [(100, 200)]
    (key,) = json.loads(path.read_text())
    assert key.endswith(" 100x200")


@needs_blas
def test_a_library_has_to_be_clearly_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the own kernels a row's result does not depend on its frame, and they are seldom much slower."""
    monkeypatch.setattr(gemm_choice, "_measured", lambda rows, cols: {"own": 1.0, "blas": 0.95})
    assert not GemmChoice("auto", tmp_path / "gemm.json").use_blas(100, 100)


@needs_blas
def test_small_products_and_broken_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_choice, "_measured", lambda rows, cols: {"own": 2.0, "blas": 1.0})
    path = tmp_path / "gemm.json"
    path.write_text("[not JSON")
    assert not GemmChoice("auto", path).use_blas(8, 8)
    assert GemmChoice("auto", path).use_blas(100, 100)


@needs_blas
def test_what_is_measured_is_what_the_engine_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward by [rows, cols]; backward by the same matrix, which the library transposes by itself."""
    timed: dict[int, list[tuple[int, int, bool]]] = {}

    def time(frame: int, depth: int, cols: int, repeats: int, transposed: bool) -> float:
        timed.setdefault(frame, []).append((depth, cols, transposed))
        return real(frame, depth, cols, 1, transposed)

    real = _native.time_blas_gemm
    monkeypatch.setattr(_native, "time_blas_gemm", time)
    found = gemm_choice._measured(70, 130)
    assert (
        min(timed) < 10 and max(timed) >= 64
    )  # frames of few rows, too, for which a library copies the matrix
    for products in timed.values():
        assert products == [(70, 130, False), (130, 70, True)] * (len(products) // 2)
    assert found.keys() == {"own", "blas"} and all(0 < seconds < 1 for seconds in found.values())


def test_products_of_bfloat16_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AmphwError, match="'bf16' with device.gemm = 'blas': .*leave device.gemm at auto"):
        GemmChoice("blas", precision="bf16")
    monkeypatch.setenv(gemm_choice.PORTABLE, "yes")
    with pytest.raises(AmphwError, match="^AMPHW_BF16=yes, allowed is portable"):
        GemmChoice("auto", precision="bf16")
    monkeypatch.setenv(gemm_choice.PORTABLE, "portable")
    choice = GemmChoice("auto", precision="bf16")
    assert choice.bf16 and not choice.use_blas(999, 999)
    assert not GemmChoice("auto").bf16
    monkeypatch.delenv(gemm_choice.PORTABLE)
    monkeypatch.setenv("AMPHW_ISA", "generic")
    because = "AMPHW_ISA=generic chooses" if _native.kernels.has_bf16() else "no AVX512-BF16"
    with pytest.raises(
        AmphwError, match=f"^device.precision = 'bf16': .*{because}.*device.precision=float32"
    ):
        GemmChoice("auto", precision="bf16")
