"""Errors that a user can act on: each has a cause, a remedy, a stable code and an exit code."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib.util import find_spec

from sifmark.core.paths import IS_CHECKOUT

_SCRIPT = re.compile(r"ci/setup/[a-z-]+")
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_GATE = 7
EXIT_UNDECIDED = 8
EXIT_BUSY = 75  # EX_TEMPFAIL of sysexits.h: the same command may do later
# The remedy for a registry that fails.
REGISTRY_REMEDY = (
    "is it up, and is the name right? `sifmark doctor` asks it; a mirror can be set in sifmark.toml: [mirrors]"
)
# The remedy for a signature that this site does not trust.
UNTRUSTED_REMEDY = "do not run it; ask where it came from, or trust its key: keys in sifmark.toml"
# The remedy for an image that differs from what its build made.
REBUILD_REMEDY = "build it again: sifmark build NAME --force, with the --engine that it is of"


def locate_scripts(remedy: str) -> str:
    """Return a remedy that says where its set-up scripts are: a wheel does not contain them."""
    return remedy if IS_CHECKOUT else _SCRIPT.sub(r"\g<0> in a clone of sifmark", remedy)


class SifmarkError(Exception):
    """A failure that a user can act on.

    `cause` says what is wrong and where, `remedy` what to do about it. `code` names the kind of failure for programs
    and stays the same when the text changes; it is one of `error_codes.CODES`. The exit code is 1.
    """

    exit_code = EXIT_FAILED

    def __init__(self, cause: str, remedy: str = "", *, code: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy
        self.code = code

    def __str__(self) -> str:
        return f"{self.cause}\n  remedy: {self.remedy}" if self.remedy else self.cause


class UsageError(SifmarkError):
    """A request that cannot be carried out, such as one with an unknown name or a bad value. The exit code is 2."""

    exit_code = EXIT_USAGE


class GateError(SifmarkError):
    """A check that a pipeline asked for did not hold. The exit code is 7."""

    exit_code = EXIT_GATE


class UndecidedError(SifmarkError):
    """A check that a pipeline asked for, and that the results do not suffice to decide. The exit code is 8."""

    exit_code = EXIT_UNDECIDED


class BusyError(SifmarkError):
    """Nothing was measured, because others use the host. The exit code is 75."""

    exit_code = EXIT_BUSY


class UnbuildableError(SifmarkError):
    """A recipe that cannot be built on this host, although nothing is wrong with it."""


class RegistryError(SifmarkError):
    """A registry that does not answer, or answers with an error; `status` is the HTTP status if there is one."""

    def __init__(self, cause: str, remedy: str = "", status: int | None = None, *, code: str) -> None:
        super().__init__(cause, remedy, code=code)
        self.status = status


def unknown_name(kind: str, name: str, names: Iterable[str], listed_by: str = "") -> UsageError:
    """Return the error for a name that does not exist.

    Its remedy has the nearest of `names`, and then either all of them or the command `listed_by` that lists them.
    """
    return UsageError(f"no {kind} {name!r}", nearest_names(name, names, listed_by), code="unknown-name")


def nearest_names(name: str, names: Iterable[str], listed_by: str = "") -> str:
    """Return the remedy for a name that does not exist: the nearest, then all of them or what lists them."""
    existing = sorted(names)
    nearest = get_close_matches(name, existing, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(nearest)}? " if nearest else ""
    rest = f"`{listed_by}` shows all {len(existing)}" if listed_by else f"known: {', '.join(existing) or 'none'}"
    return f"{hint}{rest}"


def require_extra(extra: str, purpose: str, packages: Mapping[str, str]) -> None:
    """Raise SifmarkError if packages of an extra, by the module that each brings, are missing."""
    if missing := [package for module, package in packages.items() if find_spec(module) is None]:
        raise missing_extra(extra, purpose, missing)


def missing_extra(extra: str, purpose: str, packages: Iterable[str]) -> SifmarkError:
    """Return the error for Python packages of one of our extras that are not installed."""
    cause = f"{purpose} needs {', '.join(packages)}, not installed here"
    return SifmarkError(cause, f"pip install 'sifmark[{extra}]'", code="package-missing")
