"""The bench of generated kernels: one shape, measured for real, says nothing about speed."""

from __future__ import annotations

import io
import os

import pytest
from rich.console import Console

from amphw.bench import report
from amphw.bench.opencl import measure_opencl

pytest.importorskip("pyopencl")


def test_a_shape_is_measured_in_a_process_of_its_own(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPHW_CACHE", str(tmp_path))
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    before, said = dict(os.environ), list[str]()
    record = measure_opencl(1, said.append, [(5, 17, 33)])
    assert dict(os.environ) == before
    (row,) = record["rows"]
    assert (row["k"], row["din"], row["dout"]) == (5, 17, 33) and row["ratio"] > 0
    assert record["geomean_vs_openblas"] == pytest.approx(row["ratio"]) and len(said) == 1
    assert "basic" in record["device"] and not record["valid"]  # a single round
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(report.opencl_report(record))
    assert "times as fast as OpenBLAS" in console.export_text()
