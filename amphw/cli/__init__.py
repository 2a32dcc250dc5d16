"""The command line. One file per command; nothing else in amphw imports this package."""
