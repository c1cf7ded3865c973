"""Metrics by what they are of: in a module that `by_workload` lists, every public function is one, by its own name."""
