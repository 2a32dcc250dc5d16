"""`amphw estimate`: its options, the ways to estimate, and what it prints."""
