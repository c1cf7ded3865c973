"""How models compute without gradients in PyTorch: fused, packed, token by token."""
