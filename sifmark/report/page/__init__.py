"""The page of a report: one HTML file without scripts or external requests."""
