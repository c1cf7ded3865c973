"""Commands on data sets: prepare."""
