"""The revision of the code that builds."""

from functools import cache

from sifmark import house
from sifmark.run import CommandError, run

# Where a change, a new file too, makes another image than the commit's.
_BUILD_INPUTS = ("entrypoints", "schemas", "recipes", "sifmark")


@cache
def revision() -> str | None:
    """The commit of this checkout, `-dirty` when what images are made of has changed since; None without a checkout."""
    if not house.IS_CHECKOUT:
        return None
    git = ["git", "-C", str(house.CHECKOUT)]
    try:
        commit = run([*git, "rev-parse", "HEAD"]).output.strip()
        dirty = run([*git, "status", "--porcelain", "--", *_BUILD_INPUTS]).output.strip()
    except CommandError:
        return None
    return f"{commit}-dirty" if dirty else commit
