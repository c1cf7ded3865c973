"""What several charts are made of: curves, trades of two metrics, bars, panels, timed windows, micro-benchmarks."""
