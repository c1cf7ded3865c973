"""This process's environment: platform, SOURCE_DATE_EPOCH, interpreters, and the variables of tools that we start."""

import os
import platform
import re
import shutil
import sys
from pathlib import Path

from sifmark.core.errors import UsageError

PLATFORMS = ("x86_64", "aarch64")  # the platforms that recipes may have bases for
# Apptainer's variables that change what a container sees; they must not reach the containers that build and verify.
_CONTAINER_VARIABLES = re.compile(
    r"(APPTAINER|SINGULARITY)(ENV_.*|_BIND|_BINDPATH|_OVERLAY\w*|_MOUNT|_CONTAINALL|_CLEANENV|_NV|_ROCM)"
)


def platform_name() -> str:
    """Return this machine's platform as recipes name it: `x86_64` or `aarch64`."""
    name = platform.machine()
    return {"arm64": "aarch64", "AMD64": "x86_64"}.get(name, name)


def source_date() -> int | None:
    """Return SOURCE_DATE_EPOCH in seconds since 1970, or None if it is not set (reproducible-builds.org).

    Raises UsageError for a value that is not such a number.
    """
    value = os.environ.get("SOURCE_DATE_EPOCH")
    if value is None:
        return None
    if not re.fullmatch(r"\d{1,10}", value):
        remedy = "unset it, or set it to seconds since 1970"
        raise UsageError(f"SOURCE_DATE_EPOCH is {value!r}", remedy, code="settings-invalid")
    return int(value)


def temporary_folder() -> Path:
    """Return where Apptainer unpacks and packs what it builds (its documentation, "Build Environment")."""
    names = ("APPTAINER_TMPDIR", "TMPDIR")
    return Path(next(filter(None, map(os.environ.get, names)), "/tmp")).absolute()  # noqa: S108 - its default


def tool_environment(**extra: str) -> dict[str, str]:
    """Return the environment for the tools that we start: the user's without container variables, plus `extra`."""
    return {**{key: value for key, value in os.environ.items() if not _CONTAINER_VARIABLES.fullmatch(key)}, **extra}


def find_python(version: str) -> str | None:
    """Return an interpreter on this host of a minor version such as `3.11`, or None: bytecode needs the base's own."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    path = shutil.which(f"python{version}")
    return path if path and _is_machine_code(path) else None


def _is_machine_code(path: str) -> bool:
    """Return whether a file is an ELF program. Version managers put a script in its place, which may start nothing."""
    with Path(path).open("rb") as stream:
        return stream.read(4) == b"\x7fELF"
