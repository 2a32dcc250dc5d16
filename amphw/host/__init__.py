"""What runs on the host: run configuration, controller, device protocol, links, checkpoints, traces."""
