"""Commands on recipes, for maintainers and for hosts without a network: lock, pin, fetch."""
