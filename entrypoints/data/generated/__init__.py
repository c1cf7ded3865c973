"""Inputs that are made, not read: at random or by a formula."""
