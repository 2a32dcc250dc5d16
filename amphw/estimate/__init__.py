"""What a model costs, and how fast a placement of it would be, before anything is built or run."""
