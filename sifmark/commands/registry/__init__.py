"""Commands on registries of images: push, pull, mirror, list."""
