"""PopTorch on IPUs: its steps, options, optimizers and errors."""
