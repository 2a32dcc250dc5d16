"""The sections of a run's configuration, a dataclass each; a model has one of its own."""
