"""Which OpenCL devices there are, and what their drivers say."""
