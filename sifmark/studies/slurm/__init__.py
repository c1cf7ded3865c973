"""Studies on Slurm: job arrays, their scripts and submission, and the states of their runs."""
