"""The energy of whole jobs, as Slurm or a power distribution unit counted it, next to that of our own meters."""
