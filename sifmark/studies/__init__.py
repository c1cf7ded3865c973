"""Studies: files that say which runs answer a question, and what became of the runs."""
