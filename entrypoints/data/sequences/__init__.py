"""Prepared text and speech: rows of numbers in files, and batches of them as NumPy arrays."""
