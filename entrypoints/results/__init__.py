"""Results of a run: metrics of what the child sent and the meter read, the outcome, and the result document."""
