"""What records say of the processor."""

from __future__ import annotations

from amphw.bench.processor import processor


def test_it_is_named_and_its_peak_is_that_of_its_vectors() -> None:
    told = processor()
    assert set(told) == {"name", "family", "model", "vector_bits", "bf16", "fma_gflops"}
    assert told["name"]
    one, all_ = told["fma_gflops"]["one"], told["fma_gflops"]["all"]
    if told["vector_bits"] is None:  # without the C++ data plane
        assert one is None and all_ is None
    else:
        assert told["vector_bits"] in (128, 256, 512)
        assert one > 0 and all_ > 0
    assert processor() is told
