"""Code that several kinds of device share in PyTorch."""
