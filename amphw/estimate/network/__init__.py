"""Devices and links that there need not be, and how busy each of them would be."""
