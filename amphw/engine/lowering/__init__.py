"""From a checked graph to what engines run: units, paths between them, instances' plans, placements."""
