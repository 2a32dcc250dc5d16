"""From a unit's programs to tile code, the phases over rows that engines and OpenCL's kernels are made of."""
