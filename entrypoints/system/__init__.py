"""The host, this image, and what our processes ask of the operating system."""
