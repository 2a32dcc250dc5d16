"""Partial gradient exchange: what each rank owes the others, in parts, as Ako has it (SoCC 2016)."""
