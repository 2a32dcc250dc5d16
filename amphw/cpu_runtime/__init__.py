"""The multi-core CPU device: lowering, workers, policies and the data plane."""

from amphw.cpu_runtime.device import CpuDevice

__all__ = ["CpuDevice"]
