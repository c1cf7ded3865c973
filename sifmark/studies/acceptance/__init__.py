"""Acceptance: contracts, the studies that measure for them, and what results decide about each clause."""
