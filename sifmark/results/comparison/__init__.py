"""Comparing results: groups and rows of repeats, intervals, ratios to a baseline, and a gate for pipelines."""
