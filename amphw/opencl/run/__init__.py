"""OpenCL devices at work: kernels, memory, frames and parameters."""
