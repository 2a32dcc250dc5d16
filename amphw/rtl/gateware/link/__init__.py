"""The link into a device: bytes, words and messages."""
