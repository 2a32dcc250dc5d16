"""Generated hardware as a shared library in this process: each cycle simulated, millions a second."""
