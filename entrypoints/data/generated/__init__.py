"""Inputs that are generated instead of read: at random or by a formula."""
