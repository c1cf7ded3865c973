"""Declare, plan, run and track sets of benchmark runs."""
