"""Host paths that the arguments of an image name, and how a run gets to see them."""

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

from sifmark.core.errors import UsageError

# Options of an image whose value is a path that it reads, and the one whose value it writes to.
READ_OPTIONS = ("--data", "--evaluation-data", "--measured-peak")
OUTPUT_OPTION = "--output"
ON_STDOUT = "-"  # the value of --output that is no path
METER_OPTION = "--meter"  # NAME[:PLACE]
METERS_WITH_PATHS = ("replay", "rapl", "hwmon")
_PATH_OPTIONS = (*READ_OPTIONS, OUTPUT_OPTION, METER_OPTION)
SYNTHETIC = "synthetic"  # the value of --data that is no path
# Folders of an image that must not disappear behind those of the host.
_IMAGE_FOLDERS = {
    "/", *(f"/{name}" for name in ("bin", "boot", "dev", "etc", "lib", "lib64", "opt", "proc", "run", "sbin", "sys")),
    "/sifmark", "/usr", "/var",
}  # fmt: skip
_MOST_ENTRIES = 10_000  # of a data folder, looked at for links that lead out of it


@dataclass(frozen=True)
class Bind:
    """A path of the host that a run sees under the same name."""

    path: Path
    writable: bool = False


def binds_of(arguments: Sequence[str], make_folders: bool = True) -> list[Bind]:
    """Return the host paths that the arguments of an image name, but those below the current folder, which it sees.

    With `make_folders` a folder for results is made if it does not exist, as the image would. Raises UsageError for a
    path that does not exist, or that would hide a folder of the image.
    """
    return outside_cwd(all_binds_of(arguments, make_folders))


def all_binds_of(arguments: Sequence[str], make_folders: bool = True) -> list[Bind]:
    """Return the same, and those below the current folder, for runs in other folders."""
    values = list(_values(arguments))
    return list(dict.fromkeys(bind for option, value in values for bind in _binds_of(option, value, make_folders)))


def bind_list(paths: Iterable[str]) -> str:
    """Return paths as APPTAINER_BIND has them, with commas between them."""
    return ",".join(path.replace(",", r"\,") for path in paths)


def outside_cwd(binds: Iterable[Bind]) -> list[Bind]:
    """Return those of some paths that are not below the current folder, which a run sees."""
    here = Path.cwd()
    return [bind for bind in binds if not (bind.path == here or here in bind.path.parents)]


def output_of(arguments: Sequence[str]) -> Path | None:
    """Return the file or folder that the arguments of an image let it write results to, or None."""
    values = [value for option, value in _values(arguments) if option == OUTPUT_OPTION]
    return _absolute(values[-1]) if values and values[-1] != ON_STDOUT else None


def read_options(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the options among the arguments of an image that may name a path to read, each before its value."""
    return tuple(word for option, value in _values(arguments) if option != OUTPUT_OPTION for word in (option, value))


def with_absolute_paths(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of an image so that they name the same files to read in any folder."""
    words, option = [], ""
    for word in arguments:
        name, equals, attached = word.partition("=")
        if option:
            words.append(_absolute_value(option, word))
        elif equals and name in _PATH_OPTIONS:
            words.append(f"{name}={_absolute_value(name, attached)}")
        else:
            words.append(word)
        option = word if not option and word in _PATH_OPTIONS else ""
    return tuple(words)


def _values(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield options that name paths with their values, written as two words or as `--option=value`."""
    for word, following in zip_longest(arguments, arguments[1:]):
        name, equals, attached = word.partition("=")
        value = attached if equals else following
        if name in _PATH_OPTIONS and value is not None:
            yield name, value


def _binds_of(option: str, value: str, make_folders: bool) -> Iterator[Bind]:
    if option == OUTPUT_OPTION:
        if value != ON_STDOUT:
            yield from _output_bind(value, make_folders)
    elif place := _read_place(option, value):
        yield from _read_binds(option, place)


def _read_place(option: str, value: str) -> str:
    """Return the path at the end of an option's value; an empty text if there is none."""
    if option == METER_OPTION:
        meter, _, place = value.partition(":")
        return place if meter in METERS_WITH_PATHS else ""
    return value if value != SYNTHETIC else ""


def _absolute_value(option: str, value: str) -> str:
    place = _read_place(option, value) if option != OUTPUT_OPTION else ""
    return value.removesuffix(place) + str(_absolute(place)) if place else value


def _read_binds(option: str, value: str) -> Iterator[Bind]:
    """Yield a file or folder, and what links in it lead to."""
    path = _absolute(value)
    if not path.exists():
        cause = f"{option} {value}: no such file or folder on this host"
        raise UsageError(cause, "correct the path", code="file-missing")
    _require_bindable(option, value, path)
    yield Bind(path)
    if path.is_dir():
        yield from (Bind(target) for target in _targets_outside(path))


def _output_bind(value: str, make_folders: bool) -> Iterator[Bind]:
    """Yield the folder that results are written to."""
    path = _absolute(value)
    is_folder = value.endswith("/") or path.is_dir()
    folder = path if is_folder else path.parent
    if is_folder and make_folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            cause = f"{OUTPUT_OPTION} {value}: cannot make {folder}: {error.strerror}"
            raise UsageError(cause, "name a folder that this user may write to", code="system-error") from error
    elif not is_folder and not folder.is_dir():
        cause = f"{OUTPUT_OPTION} {value}: there is no folder {folder}"
        raise UsageError(cause, f"make it first: mkdir -p {shlex.quote(str(folder))}", code="file-missing")
    _require_bindable(OUTPUT_OPTION, value, folder)
    yield Bind(folder, writable=True)


def _require_bindable(option: str, value: str, path: Path) -> None:
    if str(path) in _IMAGE_FOLDERS:
        cause = f"{option} {value}: the host's {path} would hide that of the image"
        raise UsageError(cause, f"use a folder below {path}", code="invalid-option")


def _targets_outside(folder: Path) -> list[Path]:
    """Return what links of a data folder lead to outside of it: its entries, and the first one in each folder."""
    inside, targets = folder.resolve(), dict[Path, None]()
    for link in islice(_links(folder), _MOST_ENTRIES):
        target = link.resolve()
        if target.exists() and target != inside and inside not in target.parents:
            targets[target if target.is_dir() else target.parent] = None
    return [path for path in targets if not any(parent in targets for parent in path.parents)]


def _links(folder: Path) -> Iterator[Path]:
    """Yield the links in a folder, and the first entry of each folder in it if that is one."""
    for entry in _entries(folder):
        if entry.is_symlink():
            yield Path(entry.path)
        elif entry.is_dir():
            yield from (Path(item.path) for item in islice(_entries(Path(entry.path)), 1) if item.is_symlink())


def _entries(folder: Path) -> Iterator["os.DirEntry[str]"]:
    """Yield the entries of a folder; none if it cannot be read, which the image reports."""
    with suppress(OSError), os.scandir(folder) as entries:
        yield from entries


def _absolute(value: str) -> Path:
    """Return an absolute path without following links, as the image will look for it."""
    return Path(os.path.abspath(value))  # noqa: PTH100 - pathlib keeps `..`
