"""Which placements and networks would be better."""
