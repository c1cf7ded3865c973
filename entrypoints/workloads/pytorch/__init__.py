"""Workload families in PyTorch."""
