"""Commands for developers of sifmark: check, golden."""
