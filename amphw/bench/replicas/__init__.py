"""`amphw bench replicas`: whether ranks are exact, what they move, and what they cost."""
