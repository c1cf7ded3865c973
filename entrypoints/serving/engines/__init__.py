"""One module for each engine, found by its name."""
