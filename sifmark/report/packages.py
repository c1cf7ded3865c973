"""The Python packages that pages and pictures need, which are an extra."""

from importlib.util import find_spec

from sifmark.core.errors import missing_extra

EXTRA, PACKAGES = "report", {"jinja2": "jinja2", "vl_convert": "vl-convert-python"}  # by module


def require_packages(purpose: str) -> None:
    """Raise SifmarkError if a package of the extra is missing. `purpose` is what needs them: `a report`."""
    if missing := [package for module, package in PACKAGES.items() if find_spec(module) is None]:
        raise missing_extra(EXTRA, purpose, missing)
