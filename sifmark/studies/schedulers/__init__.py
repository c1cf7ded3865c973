"""Studies on clusters: scripts of job arrays, their submission to Slurm, and what became of each run."""
