"""The meters: one module per source of readings, found by its file name."""
