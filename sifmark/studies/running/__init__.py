"""Running the runs of a study on this machine, and what is known of their states."""
