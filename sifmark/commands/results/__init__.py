"""Commands on results: validate, show, trace."""
