"""Pages that reports are written as: one HTML file each, which needs nothing else."""
