"""Hardware: one module per framework and kind of device; each opens sessions on it."""
