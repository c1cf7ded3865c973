"""The Python packages that pages and pictures need, which are an extra."""

from sifmark.core.errors import require_extra

EXTRA, PACKAGES = "report", {"jinja2": "jinja2", "vl_convert": "vl-convert-python"}  # by module


def require_packages(purpose: str) -> None:
    """Raise SifmarkError if a package of the extra is missing. `purpose` is what needs them: `a site of reports`."""
    require_extra(EXTRA, purpose, PACKAGES)


def require_templates(purpose: str) -> None:
    """Raise SifmarkError if what pages need is missing: they need no pictures."""
    require_extra(EXTRA, purpose, {"jinja2": PACKAGES["jinja2"]})


def require_paper(purpose: str) -> None:
    """Raise SifmarkError if what makes PDF and PNG is missing."""
    require_extra(EXTRA, purpose, {"vl_convert": PACKAGES["vl_convert"]})
