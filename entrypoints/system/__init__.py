"""The host, this image, and requests of our processes to the operating system."""
