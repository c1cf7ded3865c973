"""What came of a run: numbers of what the child told and the meter read, its outcome, and the document of them all."""
