"""Workloads: one card (`<name>.json`) each, and the code of their families by framework."""
