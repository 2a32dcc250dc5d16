"""Gradients that PyTorch computed, stored, and compared with without it."""
