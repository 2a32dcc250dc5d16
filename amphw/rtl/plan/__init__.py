"""From a graph to what its device consists of: control programs, records, memories and their sizes."""
