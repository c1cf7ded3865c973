"""The first three minutes of a node: a few short tests, counters of faults, and what the fleet has shown before."""
