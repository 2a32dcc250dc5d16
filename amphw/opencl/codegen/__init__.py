"""From tile code to OpenCL C."""
