"""Input data without a framework: the format of a path, and pixels as NumPy arrays."""
