"""Power and energy: what meters read while a run lasts, and what of it belongs to the timed window."""
