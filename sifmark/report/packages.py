"""The Python packages that pages and pictures need, which are an extra."""

from sifmark.core.errors import require_extra

EXTRA, PACKAGES = "report", {"jinja2": "jinja2", "vl_convert": "vl-convert-python"}  # by module


def require_packages(purpose: str) -> None:
    """Raise SifmarkError if a package of the extra is missing. `purpose` is what needs them: `a report`."""
    require_extra(EXTRA, purpose, PACKAGES)
