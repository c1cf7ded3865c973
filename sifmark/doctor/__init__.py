"""Checks of this host, and of what an image sees of it."""
