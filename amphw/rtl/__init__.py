"""FPGAs: number formats, the model of the hardware's arithmetic, and the generators of the hardware."""
