"""Parameter servers that update with each worker's gradients as they come."""
