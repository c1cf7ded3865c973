"""This process's environment: the platform, the date asked for, and what the tools that we start may see."""

import os
import platform
import re

from sifmark.core.errors import UsageError

PLATFORMS = ("x86_64", "aarch64")  # the platforms that recipes may have bases for
# Apptainer's variables that change what a container sees. The containers that build and verify ignore them.
_CONTAINER_VARIABLES = re.compile(
    r"(APPTAINER|SINGULARITY)(ENV_.*|_BIND|_BINDPATH|_OVERLAY\w*|_MOUNT|_CONTAINALL|_CLEANENV|_NV|_ROCM)"
)


def platform_name() -> str:
    """Return this machine's platform as recipes name it: `x86_64` or `aarch64`."""
    name = platform.machine()
    return {"arm64": "aarch64", "AMD64": "x86_64"}.get(name, name)


def source_date() -> int | None:
    """Return SOURCE_DATE_EPOCH in seconds since 1970, or None where it is not set (reproducible-builds.org).

    Raises UsageError for a value that is no such number.
    """
    value = os.environ.get("SOURCE_DATE_EPOCH")
    if value is None:
        return None
    if not re.fullmatch(r"\d{1,10}", value):
        raise UsageError(f"SOURCE_DATE_EPOCH is {value!r}", "unset it, or set it to seconds since 1970")
    return int(value)


def tool_environment(**extra: str) -> dict[str, str]:
    """Return the environment for the tools that we start: the user's without container variables, plus `extra`."""
    return {**{key: value for key, value in os.environ.items() if not _CONTAINER_VARIABLES.fullmatch(key)}, **extra}
