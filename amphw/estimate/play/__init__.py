"""An estimate played through in time, message by message."""
