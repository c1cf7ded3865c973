"""Commands for the devices of this host."""
