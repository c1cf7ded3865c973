"""The command line inside an image: from arguments to an exit code."""
