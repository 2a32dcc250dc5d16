"""The OpenCL device: programs become OpenCL C, and run on whatever an OpenCL platform offers."""
