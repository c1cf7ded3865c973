"""A site's settings as one frozen value: defaults, `sifmark.toml`, `SIFMARK_*` variables, options of a command line."""

import math
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
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
    sources: Path | None = None  # a folder that `inv recipe.fetch` filled, asked before any network
    builder: str = "https://sifmark.org/builder/by-hand"  # who builds, as provenance names it
    keys: tuple[str, ...] = ()  # whose signatures hold: files of public keys, fingerprints of PGP keys
    require_signature: bool = False  # of each image that is run
    registry: str | None = None  # `host/path` under which images are pushed and pulled
    private_registries: tuple[str, ...] = ()  # hosts that nobody outside may pull from

    def mirrored(self, image: str) -> str:
        """Where `registry/repository` is fetched."""
        host, _, repository = image.partition("/")
        return f"{self.mirrors.get(host, host)}/{repository}"

    def environment(self) -> dict[str, str]:
        """Return these settings as the `SIFMARK_*` variables that hand them to another sifmark process."""
        values = {key: getattr(self, key) for key in _VARIABLES}
        return {_variable(key): _format_value(key, value) for key, value in values.items() if value not in (None, ())}

    @property
    def stand_in_pins(self) -> Path:
        """The generated pins of the stand-in bases, outside recipes/."""
        return self.cache / "stand-in" / "pins.json"


def load_settings(**options: str | None) -> Settings:
    """Read the settings in force: defaults, then the file, then `SIFMARK_*` variables, then a command line's options.

    Raises UsageError when the file cannot be read or a value is not allowed.
    """
    values = {"cache": _default_cache(), "dist": "dist"} | _from_file() | _from_environment()
    return with_options(Settings(**_typed(values)), **options)


_options: dict[str, str] = {}


@cache
def settings() -> Settings:
    """Return the settings in force. Only until every caller is handed them."""
    return load_settings(**_options)


def apply_options(**options: str) -> None:
    """Let options of a command line hold for this process. Only until every caller is handed its settings."""
    _options.update({key: value for key, value in options.items() if value})
    settings.cache_clear()
    settings()


def with_options(settings: Settings, **options: str | None) -> Settings:
    """Return the settings with those options of a command line that were given; empty ones count as not given.

    Values are written as in `SIFMARK_*` variables. Raises UsageError for one that is not allowed.
    """
    values = {key: _parse_value(key, text) for key, text in options.items() if text}
    _check(values, "the command line")
    return replace(settings, **_typed(values))


def join_paths(values: Sequence[str] | None) -> str:
    """What was given more than once as the text of one variable."""
    return os.pathsep.join(values or ())


def _typed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return checked values with the types that Settings has: absolute paths and tuples."""
    return {key: _TYPES[key](value) if key in _TYPES else value for key, value in values.items()}


def _folder(value: Any) -> Path:
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError as error:  # this user has no home folder
        raise UsageError(f"no place for {value}: {error}", "name one: SIFMARK_CACHE=FOLDER") from error


_TYPES: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("cache", "dist", "sources"), _folder),
    **dict.fromkeys(("keys", "wheel_indexes", "private_registries"), tuple),
}


def _default_cache() -> str:
    return str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "sifmark")


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
    return (
        document | {"keys": [_beside_file(path, key) for key in document["keys"]]} if "keys" in document else document
    )


def _beside_file(path: Path, key: str) -> str:
    """A key as a file of settings means it: its own folder is where it looks, whoever works in whichever."""
    try:
        return key if FINGERPRINT.fullmatch(key) else str(path.absolute().parent / Path(key).expanduser())
    except RuntimeError as error:  # nobody of that name has a home folder
        raise UsageError(f"{path}: keys: {key}: {error}", "name the file by its whole path") from error


def _check(values: Mapping[str, Any], where: str) -> None:
    """Pass, or raise UsageError. No schema knows of the numbers inf and nan, which TOML has."""
    for key, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{where}: {key}: that is no finite number", "TOML knows inf and nan; give a number")
    check_document("settings-1.0", values, where)


def _from_environment() -> dict[str, Any]:
    names = {key: _variable(key) for key in _VARIABLES}
    values = {key: _parse_value(key, os.environ[name]) for key, name in names.items() if os.environ.get(name)}
    _check(values, "the SIFMARK_* variables")
    return values


def _parse_value(key: str, text: str) -> Any:
    """The value of a variable: several keys stand as several folders of PATH do, hosts with commas."""
    if key == "keys":
        return text.split(os.pathsep)
    if key == "private_registries":
        return [host.strip() for host in text.split(",")]
    if key == "cache_limit":
        with suppress(ValueError):  # the schema names what is no number
            return float(text)
    return text


def _format_value(key: str, value: Any) -> str:
    """Write a value as its variable has it; the inverse of `_parse_value`."""
    if key == "keys":
        return join_paths(value)
    if key == "private_registries":
        return ",".join(value)
    return str(value)


def _variable(key: str) -> str:
    return f"SIFMARK_{key.upper()}"
