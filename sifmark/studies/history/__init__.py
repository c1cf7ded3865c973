"""Results over time: named baselines, series with their change points, and runs as tables for other programs."""
