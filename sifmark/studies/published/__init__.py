"""Figures of published studies: reading them, and comparing results with them."""
