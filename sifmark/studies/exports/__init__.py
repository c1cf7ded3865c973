"""Studies for other programs: scripts, and modules of other suites of benchmarks; and the archive that is handed in."""
