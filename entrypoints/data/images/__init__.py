"""Images: the formats that hold them, and pixels as NumPy arrays."""
