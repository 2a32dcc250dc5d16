"""Co-design: number formats, lanes and keys of a circuit, searched together for one model and one board."""
