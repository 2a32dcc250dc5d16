"""Probes: throw-away lowerings that show that programs, expressions and key spaces can be lowered at all."""
