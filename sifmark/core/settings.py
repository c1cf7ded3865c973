"""A site's choices, read once and frozen. The only module that reads the environment."""

import math
import os
import platform
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from sifmark.core.errors import UsageError
from sifmark.core.keys import FINGERPRINT
from sifmark.core.schemas import check_document

FILE_NAME = "sifmark.toml"
# Each also as SIFMARK_*.
_VARIABLES = (
    "bases",
    "builder",
    "cache",
    "cache_limit",
    "compression",
    "dist",
    "engine",
    "keys",
    "private_registries",
    "registry",
    "sources",
)
PLATFORMS = ("x86_64", "aarch64")  # the platforms that recipes may have bases for
# A shell's wishes for its own containers; those that we start to build and to verify must not follow them.
_MEDDLING = re.compile(
    r"(APPTAINER|SINGULARITY)(ENV_.*|_BIND|_BINDPATH|_OVERLAY\w*|_MOUNT|_CONTAINALL|_CLEANENV|_NV|_ROCM)"
)


@dataclass(frozen=True)
class Settings:
    """Where things lie and what a site prefers.

    `mirrors` maps a registry host to the address that stands in for it; digests never change with it.
    """

    cache: Path
    dist: Path
    bases: str = "pinned"
    engine: str = "apptainer"
    compression: str = "zstd"
    mirrors: dict[str, str] = field(default_factory=dict)
    wheel_indexes: tuple[str, ...] = ()  # asked in place of the one that pip knows and of a vendor's
    time_limit: float = 3600.0  # seconds for one engine call
    cache_limit: float | None = None  # GiB that the cache may take
    sources: Path | None = None  # a folder that `inv fetch-sources` filled, asked before any network
    builder: str = "https://sifmark.org/builder/by-hand"  # who builds, as provenance names it
    keys: tuple[str, ...] = ()  # whose signatures hold: files of public keys, fingerprints of PGP keys
    require_signature: bool = False  # of each image that is run
    registry: str | None = None  # `host/path` under which images are pushed and pulled
    private_registries: tuple[str, ...] = ()  # hosts that nobody outside may pull from

    def mirrored(self, image: str) -> str:
        """Where `registry/repository` is fetched."""
        host, _, repository = image.partition("/")
        return f"{self.mirrors.get(host, host)}/{repository}"

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
    try:
        return Settings(
            cache=Path(chosen.pop("cache", _default_cache())).expanduser().absolute(),
            dist=Path(chosen.pop("dist", "dist")).expanduser().absolute(),
            sources=Path(sources).expanduser().absolute() if (sources := chosen.pop("sources", None)) else None,
            keys=tuple(chosen.pop("keys", ())),
            wheel_indexes=tuple(chosen.pop("wheel_indexes", ())),
            private_registries=tuple(chosen.pop("private_registries", ())),
            **chosen,
        )
    except RuntimeError as error:  # this user has no home folder
        raise UsageError(f"no place for the cache: {error}", "name one: SIFMARK_CACHE=FOLDER") from error


def with_options(**given: str | None) -> Settings:
    """The settings in force with those options of a command line that were given. Raises UsageError for bad ones."""
    chosen: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    _check(chosen, "the command line")
    return replace(settings(), **chosen)


def apply_options(**given: str) -> None:
    """Let options of a command line hold as the `SIFMARK_*` variables do, for this process and those it starts.

    Raises UsageError for values that are not allowed.
    """
    asked = {key: value for key, value in given.items() if value}
    _check({key: _meant(key, value) for key, value in asked.items()}, "the command line")
    os.environ.update({f"SIFMARK_{key.upper()}": value for key, value in asked.items()})
    settings.cache_clear()
    settings()


def join_paths(values: Sequence[str] | None) -> str:
    """What was given more than once as the text of one variable."""
    return os.pathsep.join(values or ())


def platform_name() -> str:
    """This machine's platform as recipes name it: `x86_64` or `aarch64`."""
    name = platform.machine()
    return {"arm64": "aarch64", "AMD64": "x86_64"}.get(name, name)


def source_date() -> int | None:
    """The date that whoever builds asks for, in seconds since 1970: SOURCE_DATE_EPOCH of reproducible-builds.org.

    Raises UsageError where it is no such number.
    """
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        return None
    if not re.fullmatch(r"\d{1,10}", given):
        raise UsageError(f"SOURCE_DATE_EPOCH is {given!r}", "unset it, or set it to seconds since 1970")
    return int(given)


def tool_environment(**extra: str) -> dict[str, str]:
    """The environment for the tools that we call: the user's own without wishes for containers, and additions."""
    return {**{key: value for key, value in os.environ.items() if not _MEDDLING.fullmatch(key)}, **extra}


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
    _check(document, str(path))
    return document | {"keys": [_beside(path, key) for key in document["keys"]]} if "keys" in document else document


def _beside(path: Path, key: str) -> str:
    """A key as a file of settings means it: its own folder is where it looks, whoever works in whichever."""
    try:
        return key if FINGERPRINT.fullmatch(key) else str(path.absolute().parent / Path(key).expanduser())
    except RuntimeError as error:  # nobody of that name has a home folder
        raise UsageError(f"{path}: keys: {key}: {error}", "name the file by its whole path") from error


def _check(chosen: Mapping[str, Any], where: str) -> None:
    """Pass, or raise UsageError. No schema knows of the numbers inf and nan, which TOML has."""
    for key, value in chosen.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{where}: {key}: that is no finite number", "TOML knows inf and nan; give a number")
    check_document("settings-1.0", chosen, where)


def _from_environment() -> dict[str, Any]:
    names = {key: f"SIFMARK_{key.upper()}" for key in _VARIABLES}
    chosen = {key: _meant(key, os.environ[name]) for key, name in names.items() if os.environ.get(name)}
    _check(chosen, "the SIFMARK_* variables")
    return chosen


def _meant(key: str, text: str) -> Any:
    """The value of a variable: several keys stand as several folders of PATH do, hosts with commas."""
    if key == "keys":
        return text.split(os.pathsep)
    if key == "private_registries":
        return [host.strip() for host in text.split(",")]
    if key == "cache_limit":
        with suppress(ValueError):  # the schema names what is no number
            return float(text)
    return text
