"""The command line inside an image: from words to an exit code."""
