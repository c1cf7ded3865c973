"""Image stores: pushing, pulling, mirroring, signing and listing images."""
