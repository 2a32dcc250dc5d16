"""The page of a run that is under way, which asks for news of it every second."""
