"""Scripts of job arrays in the terms of each scheduler."""
