"""The commit of the code that builds, and its date."""

from functools import cache

from sifmark.core import paths
from sifmark.core.console import status
from sifmark.core.environment import source_date
from sifmark.core.files import FIXED_MTIME
from sifmark.core.process import CommandError, CompletedCommand, run

# A change in these folders, a new file too, makes another image than the commit's.
_BUILD_INPUTS = ("entrypoints", "schemas", "recipes", "sifmark")


@cache
def revision() -> str | None:
    """Return the commit of this checkout, or None without a checkout.

    It ends in `-dirty` if a file that goes into images, or that builds them, has changed since.
    """
    if not paths.IS_CHECKOUT:
        return None
    try:
        commit = _git("rev-parse", "HEAD").output.strip()
        changes = _git("status", "--porcelain", "--", *_BUILD_INPUTS).output.strip()
    except CommandError as error:
        status(f"  images will not name their commit: {error.cause}")
        return None
    return f"{commit}-dirty" if changes else commit


def has_commit(commit: str) -> bool:
    """Return whether this checkout's repository has a commit, given by its full hash."""
    if not paths.IS_CHECKOUT:
        return False
    return _git("cat-file", "-e", f"{commit}^{{commit}}", check=False).exit_code == 0


@cache
def source_date_of_build() -> int:
    """Return the date that images carry, in seconds since 1970: one commit gives one image.

    It is SOURCE_DATE_EPOCH if set, else the commit's date, or a fixed one without a checkout.
    """
    if (date := source_date()) is not None:
        return date
    if not paths.IS_CHECKOUT:
        return FIXED_MTIME
    try:
        return int(_git("log", "-1", "--format=%ct").output)
    except (CommandError, ValueError):
        return FIXED_MTIME


def _git(*arguments: str, check: bool = True) -> CompletedCommand:
    return run(["git", "-C", str(paths.CHECKOUT), *arguments], check=check)
