"""What can go wrong, said once: the cause, what to do about it, and the exit code."""

from collections.abc import Iterable
from difflib import get_close_matches

EXIT_FAILED = 1
EXIT_USAGE = 2
# The remedy for a registry.
REGISTRY_REMEDY = (
    "is it up, and is the name right? `inv doctor` asks it; a mirror can be set in sifmark.toml: [mirrors]"
)
# The remedy for a signature that does not hold here.
UNTRUSTED_REMEDY = "do not run it; ask where it came from, or trust its key: keys in sifmark.toml"
# The remedy for an image that is not what it should be.
REBUILD_REMEDY = "build it again: inv build NAME --force, with the --engine that it is of"


class SifmarkError(Exception):
    """A failure that a user can act on.

    `cause` says what is wrong and where, `remedy` what to do about it. `code` names the kind of failure for programs
    and stays the same when the text changes; it is one of `error_codes.CODES`. The exit code is 1.
    """

    exit_code = EXIT_FAILED

    def __init__(self, cause: str, remedy: str = "", *, code: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy
        self.code = code

    def __str__(self) -> str:
        return f"{self.cause}\n  remedy: {self.remedy}" if self.remedy else self.cause


class UsageError(SifmarkError):
    """What the user asked for cannot be meant: unknown names, bad values. The exit code is 2."""

    exit_code = EXIT_USAGE


class UnbuildableError(SifmarkError):
    """A recipe that cannot be built here, though nothing is wrong with it."""


class RegistryError(SifmarkError):
    """A registry that does not answer, or not with what was asked for; `status` is HTTP's where it said one."""

    def __init__(self, cause: str, remedy: str = "", status: int | None = None, *, code: str = "") -> None:
        super().__init__(cause, remedy, code=code)
        self.status = status


def unknown_name(kind: str, name: str, known: Iterable[str], told_by: str = "") -> UsageError:
    """The error for a name that does not exist: the nearest ones first, then all, or which verb tells them."""
    names = sorted(known)
    near = get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    rest = f"`{told_by}` shows all {len(names)}" if told_by else f"known: {', '.join(names) or 'none'}"
    return UsageError(f"no {kind} {name!r}", f"{hint}{rest}", code="unknown-name")


def missing_extra(extra: str, purpose: str, packages: Iterable[str]) -> SifmarkError:
    """Return the error for packages that one of our extras brings and that are not installed."""
    return SifmarkError(f"{purpose} needs {', '.join(packages)}, not installed here", f"pip install 'sifmark[{extra}]'")
