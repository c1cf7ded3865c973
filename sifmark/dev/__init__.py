"""Tools for maintainers of this repository: generated pages and golden texts."""
