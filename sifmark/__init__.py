"""sifmark: one benchmark image per AI accelerator, one workload set in each, one JSON answer from all."""

__version__ = "0.2.0"
