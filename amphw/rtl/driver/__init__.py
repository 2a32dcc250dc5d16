"""The host's side of a device: what it puts where, what it sends and hears, and what runs on the host."""
