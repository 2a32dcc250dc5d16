"""The model of the hardware's arithmetic, on integers, without hardware tools."""
