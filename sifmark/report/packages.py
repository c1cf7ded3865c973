"""The Python package that makes pictures other than SVG of our own, which is an extra."""

from sifmark.core.errors import require_extra

EXTRA, PACKAGES = "report", {"vl_convert": "vl-convert-python"}  # by module


def require_packages(purpose: str) -> None:
    """Raise SifmarkError if a package of the extra is missing. `purpose` is what needs it: `PDF and PNG of charts`."""
    require_extra(EXTRA, purpose, PACKAGES)
