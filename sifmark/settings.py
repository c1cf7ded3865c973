"""A site's choices, read once and frozen. The only module that reads the environment."""

import os
import platform
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sifmark.errors import UsageError
from sifmark.schema import check_document

FILE_NAME = "sifmark.toml"
BASES = ("pinned", "stand-in")
COMPRESSIONS = ("zstd", "gzip", "lz4", "xz")


@dataclass(frozen=True)
class Settings:
    """Where things lie and what a site prefers.

    `mirrors` maps a registry host to the address that stands in for it; digests never change with it.
    """

    cache: Path
    dist: Path
    bases: str = "pinned"
    compression: str = "zstd"
    mirrors: dict[str, str] = field(default_factory=dict)
    time_limit: float = 3600.0  # seconds for one engine call

    @property
    def stand_in_pins(self) -> Path:
        """The generated pins of the stand-in bases, outside recipes/."""
        return self.cache / "stand-in" / "pins.json"


@cache
def settings() -> Settings:
    """The settings in force: defaults, then the file, then `SIFMARK_*` variables.

    Raises UsageError when the file does not read or a value is not allowed.
    """
    chosen = _from_file() | _from_environment()
    return Settings(
        cache=Path(chosen.pop("cache", _default_cache())).expanduser().absolute(),
        dist=Path(chosen.pop("dist", "dist")).expanduser().absolute(),
        **chosen,
    )


def machine() -> str:
    """This machine's platform as recipes name it: `x86_64` or `aarch64`."""
    name = platform.machine()
    return {"arm64": "aarch64", "AMD64": "x86_64"}.get(name, name)


def clean_environment(**extra: str) -> dict[str, str]:
    """The environment for the tools that we call: the user's own, with additions."""
    return {**os.environ, **extra}


def _default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "sifmark"


def _from_file() -> dict[str, Any]:
    path = Path(os.environ.get("SIFMARK_SETTINGS", FILE_NAME))
    if not path.is_file():
        if "SIFMARK_SETTINGS" in os.environ:
            raise UsageError(f"SIFMARK_SETTINGS names {path}, which is not a file", "correct or unset it")
        return {}
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {error}", "correct the file, or remove it to use the defaults") from error
    check_document("settings-1.0", document, str(path))
    return document


def _from_environment() -> dict[str, Any]:
    names = {"cache": "SIFMARK_CACHE", "dist": "SIFMARK_DIST", "bases": "SIFMARK_BASES"}
    chosen: dict[str, Any] = {key: os.environ[name] for key, name in names.items() if os.environ.get(name)}
    check_document("settings-1.0", chosen, "the SIFMARK_* variables")
    return chosen
