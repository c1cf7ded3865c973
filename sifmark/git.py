"""The revision of the code that builds."""

from functools import cache

from sifmark import house
from sifmark.run import CommandError, run


@cache
def revision() -> str | None:
    """The commit of this checkout, `-dirty` when it has uncommitted changes; None without a checkout."""
    if not house.IS_CHECKOUT:
        return None
    git = ["git", "-C", str(house.CHECKOUT)]
    try:
        commit = run([*git, "rev-parse", "HEAD"]).output.strip()
        dirty = run([*git, "status", "--porcelain", "--untracked-files=no"]).output.strip()
    except CommandError:
        return None
    return f"{commit}-dirty" if dirty else commit
