"""Hand-built graphs that every executor must run alike; `cases.py` lists them with their instances."""
