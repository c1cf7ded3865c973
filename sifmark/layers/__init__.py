"""The file system layers of an image: wheels, code, bytecode, and the cache that keeps them."""
