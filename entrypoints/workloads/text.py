"""What networks over text hold to in every framework."""

NOTHING = 0  # the token of a place that holds none
BASE = 10000.0  # of the wavelengths of rotary positions
