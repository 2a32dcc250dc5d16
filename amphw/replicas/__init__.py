"""Replicas of a model that train together: what they send, by which strategy, over what carrier."""
