"""Data sets of the models, loaded from a local folder or fetched from their public source and checked."""
