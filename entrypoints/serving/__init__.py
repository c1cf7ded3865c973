"""Serving: load on an engine that batches requests by itself, and what it answers."""
