"""Charts of all results of a report: a module for each, with the same `draw` as those of sections."""
