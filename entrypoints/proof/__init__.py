"""First light of a device: a series of experiments that show what holds on it, and a page that says so."""
