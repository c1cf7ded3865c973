"""From a command line to its runs, with every default filled in."""
