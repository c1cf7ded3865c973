"""Commands for the figures of published studies."""
