"""What stands around the generated hardware: Verilog, synthesis, proofs, and the environment they need."""
