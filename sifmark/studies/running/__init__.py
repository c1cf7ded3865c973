"""Run a study on this machine, and the states of its runs."""
