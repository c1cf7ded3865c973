"""A site's settings as one frozen value: defaults, `sifmark.toml`, `SIFMARK_*` variables, options of a command line."""

import math
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from sifmark.core.errors import UsageError, nearest_names
from sifmark.core.keys import FINGERPRINT
from sifmark.core.schemas import check_document, without_passwords

FILE_NAME = "sifmark.toml"
_FILE_ONLY = {"variable": False}  # of a setting without a SIFMARK_* variable


def _list(separator: str) -> Any:
    """Return a setting of several texts, which its variable has with this separator between them."""
    return field(default=(), metadata={"separator": separator})


@dataclass(frozen=True)
class Settings:
    """Where files go and what a site prefers.

    Each setting is one of the schema `settings-1.0`, and has a `SIFMARK_*` variable unless it is marked otherwise.
    `origins` says where those come from that are no defaults.
    `mirrors` maps a registry host to the address that replaces it; digests never change with it.
    """

    cache: Path
    dist: Path
    bases: str = "pinned"
    engine: str = "apptainer"
    compression: str = "zstd"
    mirrors: dict[str, str] = field(default_factory=dict, metadata=_FILE_ONLY)
    # These replace the index that pip is configured for, and a vendor's own.
    wheel_indexes: tuple[str, ...] = field(default=(), metadata=_FILE_ONLY)
    time_limit: float = field(default=3600.0, metadata=_FILE_ONLY)  # seconds for one engine call
    cache_limit: float | None = None  # GiB that the cache may take
    sources: Path | None = None  # a folder that `sifmark recipe.fetch` filled; it is used before any network
    builder: str = "https://sifmark.org/builder/by-hand"  # who builds, as provenance names it
    keys: tuple[str, ...] = _list(os.pathsep)  # trusted keys: files of public keys, fingerprints of PGP keys
    require_signature: bool = field(default=False, metadata=_FILE_ONLY)  # of each image that is run
    results_key: Path | None = None  # the private key that signs results
    registry: str | None = None  # `host/path` under which images are pushed and pulled
    private_registries: tuple[str, ...] = _list(",")  # hosts that nobody outside may pull from
    energy: dict[str, Any] = field(default_factory=dict, metadata=_FILE_ONLY)  # what it costs and emits here
    prices: dict[str, Any] = field(default_factory=dict, metadata=_FILE_ONLY)  # of devices, by system
    # Where `study.baseline` keeps them.
    baselines: Path = field(default_factory=lambda: Path("baselines").absolute())
    # Where `run` keeps results on a terminal.
    results: Path = field(default_factory=lambda: Path("results").absolute())
    slurm: dict[str, Any] = field(default_factory=dict, metadata=_FILE_ONLY)  # of jobs that studies submit
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, metadata={"setting": False})

    def origin(self, setting: str) -> str:
        """Return who chose the value of a setting, such as `dist in sifmark.toml` or `SIFMARK_DIST`."""
        return self.origins.get(setting, f"the default of {setting}")

    def mirrored(self, image: str) -> str:
        """Return the address from which `registry/repository` is fetched."""
        host, _, repository = image.partition("/")
        return f"{self.mirrors.get(host, host)}/{repository}"

    def environment(self) -> dict[str, str]:
        """Return these settings as the `SIFMARK_*` variables that hand them to another sifmark process."""
        values = {setting: getattr(self, setting.name) for setting in _variable_settings()}
        return {
            _variable(setting.name): _format_value(setting, value)
            for setting, value in values.items()
            if value not in (None, ())
        }

    @property
    def stand_in_pins(self) -> Path:
        """The generated pins of the stand-in bases, outside recipes/."""
        return self.cache / "stand-in" / "pins.json"


def load_settings(**options: str | None) -> Settings:
    """Read the settings in force: defaults, then the file, then `SIFMARK_*` variables, then a command line's options.

    Raises UsageError when the file cannot be read or a value is not allowed.
    """
    in_file, in_environment = _from_file(), _from_environment()
    values = {"cache": _default_cache(), "dist": "dist"} | in_file | in_environment
    origins = {key: f"{key} in {_file()}" for key in in_file} | {key: _variable(key) for key in in_environment}
    return with_options(Settings(**_convert(values), origins=origins), **options)


def with_options(settings: Settings, **options: str | None) -> Settings:
    """Return the settings with those options of a command line that were given; empty ones count as not given.

    Values are written as in `SIFMARK_*` variables. Raises UsageError for one that is not allowed.
    """
    values = {key: _parse_value(_SETTINGS[key], text) for key, text in options.items() if text}
    _check(values, "the command line", "invalid-option")
    origins = {**settings.origins, **{key: f"--{key.replace('_', '-')}" for key in values}}
    return replace(settings, **_convert(values), origins=origins)


def join_paths(values: Sequence[str] | None) -> str:
    """Join the values of an option that was given several times into the text of one variable."""
    return os.pathsep.join(values or ())


def _variable_settings() -> list["Field[Any]"]:
    return [setting for setting in _SETTINGS.values() if setting.metadata.get("variable", True)]


def _variable(key: str) -> str:
    return f"SIFMARK_{key.upper()}"


def _file() -> Path:
    return Path(os.environ.get("SIFMARK_SETTINGS", FILE_NAME))


def _from_file() -> dict[str, Any]:
    path = _file()
    if not path.is_file():
        if "SIFMARK_SETTINGS" in os.environ:
            cause = f"SIFMARK_SETTINGS names {path}, which is not a file"
            raise UsageError(cause, "correct or unset it", code="file-missing")
        return {}
    try:
        text = path.read_text()
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        remedy = "correct the file, or remove it to use the defaults"
        raise UsageError(f"{path}: {error}", remedy, code="settings-invalid") from error
    if unknown := [key for key in document if key not in _SETTINGS]:
        line = next((f":{at}" for at, each in enumerate(text.splitlines(), 1) if unknown[0] in each), "")
        cause = f"{path}{line}: no setting {without_passwords(unknown[0])!r}"
        raise UsageError(cause, nearest_names(unknown[0], _SETTINGS), code="settings-invalid")
    _check(document, str(path), "settings-invalid")
    for key, value in document.items():
        if key == "keys":
            document[key] = [each if FINGERPRINT.fullmatch(each) else _beside(path, key, each) for each in value]
        elif _SETTINGS[key].type in (Path, Path | None):
            document[key] = _beside(path, key, value)
    return document


def _beside(path: Path, key: str, value: str) -> str:
    """Return a path in a settings file, which starts at the file's own folder, not at the working folder."""
    try:
        return str(path.absolute().parent / Path(value).expanduser())
    except RuntimeError as error:  # no user of that name has a home folder
        cause = f"{path}: {key}: {value}: {error}"
        raise UsageError(cause, "name it by its whole path", code="settings-invalid") from error


def _from_environment() -> dict[str, Any]:
    texts = {setting: os.environ.get(_variable(setting.name)) for setting in _variable_settings()}
    values = {setting.name: _parse_value(setting, text) for setting, text in texts.items() if text}
    _check(values, "the SIFMARK_* variables", "settings-invalid")
    return values


def _check(values: Mapping[str, Any], where: str, code: str) -> None:
    """Raise UsageError for a value that is not allowed. The schema cannot refuse inf and nan, which TOML has."""
    for key, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            cause = f"{where}: {key}: that is no finite number"
            raise UsageError(cause, "TOML knows inf and nan; give a number", code=code)
    check_document("settings-1.0", values, where, code)


def _parse_value(setting: "Field[Any]", text: str) -> Any:
    """Return the value of a variable or an option, as it would be in the file."""
    if separator := setting.metadata.get("separator"):
        parts = text.split(separator)
        return [part.strip() for part in parts] if separator == "," else parts
    if setting.type in (float, float | None):
        with suppress(ValueError):  # the schema refuses a text that is no number
            return float(text)
    return text


def _format_value(setting: "Field[Any]", value: Any) -> str:
    """Return a value as its variable has it; the inverse of `_parse_value`."""
    separator = setting.metadata.get("separator")
    return separator.join(value) if separator else str(value)


def _convert(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return checked values with the types that Settings has: absolute paths and tuples."""
    return {key: _CONVERTERS.get(_SETTINGS[key].type, _same)(value) for key, value in values.items()}


def _folder(value: Any) -> Path:
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError as error:  # this user has no home folder
        cause = f"no place for {value}: {error}"
        raise UsageError(cause, "name one: SIFMARK_CACHE=FOLDER", code="settings-invalid") from error


def _same(value: Any) -> Any:
    return value


def _default_cache() -> str:
    return str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "sifmark")


_SETTINGS = {setting.name: setting for setting in fields(Settings) if setting.metadata.get("setting", True)}
_CONVERTERS: dict[Any, Callable[[Any], Any]] = {Path: _folder, Path | None: _folder, tuple[str, ...]: tuple}
