"""Hardware that PyTorch reaches."""
