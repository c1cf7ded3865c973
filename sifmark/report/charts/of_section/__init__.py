"""Charts of one section: a module for each, whose `draw` returns the chart, or None if the results cannot fill it."""
