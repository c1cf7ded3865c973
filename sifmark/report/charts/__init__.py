"""Charts of reports, as Vega-Lite: a module for each kind, and what all have in common."""
