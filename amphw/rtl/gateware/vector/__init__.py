"""The vector unit: everything but products with parameters, one element a cycle."""
