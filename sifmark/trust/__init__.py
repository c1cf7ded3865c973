"""Checks of a finished image, and of the chain from a result back to its image and commit."""
