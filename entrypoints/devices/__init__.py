"""Hardware: one module per framework and kind of device, each of which opens sessions on it."""
