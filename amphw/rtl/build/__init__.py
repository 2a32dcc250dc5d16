"""From a plan to a board: which boards there are, whether it fits, its files, and loading them."""
