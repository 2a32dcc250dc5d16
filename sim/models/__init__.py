"""What components do, in numpy, and random work for them: for benches here and in Amaranth's simulator."""
