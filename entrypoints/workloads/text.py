"""Constants of networks over text, for every framework."""

PADDING = 0  # the padding token
BASE = 10000.0  # of the wavelengths of rotary positions
