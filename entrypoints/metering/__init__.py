"""Power and energy: what meters read during a run, and the share of the timed window."""
