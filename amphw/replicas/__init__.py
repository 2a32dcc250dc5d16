"""Replicas of a model that train together: what they send each other, by which strategy, over what carrier."""
