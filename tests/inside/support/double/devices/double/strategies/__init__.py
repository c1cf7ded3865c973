"""Ranks of the double."""
