"""Input data without a framework: what lies in a folder, and pixels as NumPy arrays."""
