"""Hardware that PyTorch can use."""
