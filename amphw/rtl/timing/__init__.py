"""What firings take on a circuit, in cycles, and which nodes a critical path belongs to."""
