"""The revision of the code that builds, and its date."""

from functools import cache

from sifmark.core import paths
from sifmark.core.console import status
from sifmark.core.environment import source_date
from sifmark.core.files import FIXED_MTIME
from sifmark.core.process import CommandError, run

# Where a change, a new file too, makes another image than the commit's.
_BUILD_INPUTS = ("entrypoints", "schemas", "recipes", "sifmark")


@cache
def revision() -> str | None:
    """The commit of this checkout, `-dirty` when what images are made of has changed since; None without a checkout."""
    if not paths.IS_CHECKOUT:
        return None
    git = ["git", "-C", str(paths.CHECKOUT)]
    try:
        commit = run([*git, "rev-parse", "HEAD"]).output.strip()
        dirty = run([*git, "status", "--porcelain", "--", *_BUILD_INPUTS]).output.strip()
    except CommandError as error:
        status(f"  images will not name their commit: {error.cause}")
        return None
    return f"{commit}-dirty" if dirty else commit


def has_commit(commit: str) -> bool:
    """Whether this checkout's repository has a commit, by its whole hash."""
    if not paths.IS_CHECKOUT:
        return False
    asked = ["git", "-C", str(paths.CHECKOUT), "cat-file", "-e", f"{commit}^{{commit}}"]
    return run(asked, check=False).exit_code == 0


@cache
def source_date_of_build() -> int:
    """The date that images carry, in seconds since 1970, so that one commit gives one image.

    It is the commit's, unless SOURCE_DATE_EPOCH says another; without a checkout a fixed one.
    """
    if (asked := source_date()) is not None:
        return asked
    if not paths.IS_CHECKOUT:
        return FIXED_MTIME
    try:
        return int(run(["git", "-C", str(paths.CHECKOUT), "log", "-1", "--format=%ct"]).output)
    except (CommandError, ValueError):
        return FIXED_MTIME
