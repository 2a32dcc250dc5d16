"""The link over USB: a serial port of a device's own, and what stands between it and the circuit."""
