"""Models that others wrote, from installed packages, whose layers amphw takes from PyTorch unedited."""
