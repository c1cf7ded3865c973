"""Exports of a study to ReFrame, JUBE, Slurm and the shell; and the archive that is handed in."""
