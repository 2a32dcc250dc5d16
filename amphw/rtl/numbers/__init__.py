"""Number formats of the hardware, and its arithmetic for numpy and for gates alike."""
