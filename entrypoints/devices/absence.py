"""Why a device cannot be computed on, said before a framework's traceback would."""

from __future__ import annotations

import glob

from entrypoints.statuses import RunError


def require_files(pattern: str, flag: str) -> None:
    """Raise RunError (`no_device`) where no device file matches."""
    if not glob.glob(pattern):  # noqa: PTH207 - a pattern from the root
        raise RunError("no_device", f"there is no {pattern} here; in a container: was it started with {flag}?")


def not_yet(name: str) -> RunError:
    """A device is there, and this version has no session for it."""
    return RunError("unsupported", f"{name} is there, but this version of sifmark computes only with --device cpu")
