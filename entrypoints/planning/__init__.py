"""From a command line to the runs that it asks for, with every default filled in."""
