"""Input data without a framework: what lies at a path, in which format, and pixels as NumPy arrays."""
