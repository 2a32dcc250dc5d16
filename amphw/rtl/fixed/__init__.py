"""The hardware's arithmetic in numpy: to train whole models in it, and for hardware to be compared with."""
