"""Host paths that a run gets to see: those that a user asks for, and those that the arguments of an image name."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
    "/usr", "/var",
}  # fmt: skip
# What is ours there, and Apptainer's: whatever hides a part of it changes what is measured.
_OWN_FOLDERS = (Path("/sifmark"), Path("/.singularity.d"))
_IS_WRITABLE = {"ro": False, "rw": True}  # by the option of a bind
_PIECE = re.compile(r"\\([:\\])|(:)|(.)", re.DOTALL)  # of a bind's text: escaped, a separator, other
_MOST_ENTRIES = 10_000  # of a data folder, looked at for links that lead out of it


@dataclass(frozen=True)
class Bind:
    """A path of the host that a run sees, read-only unless it is `writable`."""

    path: Path
    writable: bool = False
    name: Path | None = None  # how the run calls it; None: as the host does

    @property
    def target(self) -> Path:
        """Where the run sees it."""
        return self.name or self.path

    @property
    def text(self) -> str:
        """What `parse_bind` reads as this bind."""
        parts = [self.path, *([self.target] if self.name or self.writable else [])]
        texts = [re.sub(r"[:\\]", r"\\\g<0>", str(part)) for part in parts]
        return ":".join([*texts, *(["rw"] if self.writable else [])])


def parse_bind(text: str) -> Bind:
    """Return a bind that a user wrote as SRC, SRC:DST or SRC:DST:ro|rw; without an option it is read-only.

    SRC may be relative to the current folder. In a path `\\:` is a colon, and `\\\\` a backslash. Raises UsageError for
    another form, a relative DST, and one that would hide a folder of the image.
    """
    source, *rest = _parts(text)
    if not source or len(rest) > len(("DST", "ro")):
        cause = f"bind {text!r} is not SRC, SRC:DST, SRC:DST:ro or SRC:DST:rw"
        raise UsageError(cause, "write a path of this host; a colon in a path is \\:", code="invalid-option")
    target, option = (rest[0] if rest else None), (rest[1] if rest[1:] else "ro")
    if option not in _IS_WRITABLE:
        raise UsageError(f"bind {text}: no option {option!r}", "ro, the default, or rw", code="invalid-option")
    if target is not None and not target.startswith("/"):
        remedy = "write the path that the image sees, from / on: SRC:DST, SRC:DST:rw"
        raise UsageError(f"bind {text}: {target!r} is no absolute path", remedy, code="invalid-option")
    path = _absolute(source)
    name = path if target is None else _absolute(target)
    _require_bindable("bind", text, name)
    return Bind(path, _IS_WRITABLE[option], None if name == path else name)


def parse_binds(texts: Iterable[str]) -> tuple[Bind, ...]:
    """Return several binds. Raises UsageError as `parse_bind`, and for two in one place."""
    binds: dict[Path, Bind] = {}
    for bind in map(parse_bind, texts):
        if binds.setdefault(bind.target, bind) != bind:
            cause = f"bind {bind.text}: {binds[bind.target].text} is in the same place"
            raise UsageError(cause, "leave one of them out, or give it another DST", code="invalid-option")
    return tuple(binds.values())


def binds_of(arguments: Sequence[str], make_folders: bool = True, asked: Sequence[Bind] = ()) -> list[Bind]:
    """Return what a run has to be shown besides the current folder: what is `asked` for, and what its arguments name.

    With `make_folders` a folder for results is made if it does not exist, as the image would. Data may be named as the
    run sees them by the binds that are asked for. Raises UsageError for a path that does not exist, or that would hide
    a folder of the image.
    """
    here = Path.cwd()
    asked = [bind for bind in asked if (bind.path, bind.target) != (here, here)]
    shown = [each for bind in all_binds_of(arguments, make_folders, asked) for each in _beside(bind, here, asked)]
    # Apptainer mounts the current folder first, and what is above it would make it read-only.
    is_hidden = any(bind.target in here.parents for bind in asked)
    return merged([*shown, *([Bind(here, writable=True)] if is_hidden else [])])


def all_binds_of(arguments: Sequence[str], make_folders: bool = True, asked: Sequence[Bind] = ()) -> list[Bind]:
    """Return the same, and what is below the current folder, for runs in other folders."""
    for bind in asked:
        if not bind.path.exists():
            cause = f"bind {bind.path}: no such file or folder on this host"
            raise UsageError(cause, "correct the path: bind of the system in the study, or --bind", code="file-missing")
    named = (bind for option, value in _values(arguments) for bind in _binds_of(option, value, make_folders, asked))
    return merged([*asked, *named])


def merged(binds: Iterable[Bind]) -> list[Bind]:
    """Return binds with one for each place: the first, and writable if any is. A folder comes before those in it."""
    places: dict[Path, Bind] = {}
    for bind in binds:
        first = places.setdefault(bind.target, bind)
        places[bind.target] = replace(first, writable=first.writable or bind.writable)
    return sorted(places.values(), key=lambda bind: len(bind.target.parts))


def bind_options(binds: Iterable[Bind]) -> list[str]:
    """Return the options of `sifmark run` that ask for binds."""
    return [word for bind in binds for word in ("--bind", bind.text)]


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


def _parts(text: str) -> list[str]:
    """Return what colons divide in the text of a bind."""
    parts = [""]
    for escaped, separator, other in _PIECE.findall(text):
        if separator:
            parts.append("")
        else:
            parts[-1] += escaped or other
    return parts


def _beside(bind: Bind, here: Path, asked: Sequence[Bind]) -> Iterator[Bind]:
    """Yield what has to be shown of a path beside the current folder: if it is in there, what a link leads out to."""
    if not _is_seen(bind, here, asked):
        yield bind
    elif not _is_within(place := bind.path.resolve(), here):
        _require_bindable("link", str(bind.path), place)
        yield Bind(place, bind.writable)


def _is_seen(bind: Bind, here: Path, asked: Sequence[Bind]) -> bool:
    """Return whether a run sees a path by the current folder, and not by a bind that is asked for within it."""
    if bind in asked or not _is_within(bind.target, here):
        return False
    return not any(_is_within(each.target, here) and _is_within(bind.target, each.target) for each in asked)


def _is_within(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def _binds_of(option: str, value: str, make_folders: bool, asked: Sequence[Bind]) -> Iterator[Bind]:
    if option == OUTPUT_OPTION:
        if value != ON_STDOUT:
            yield from _output_bind(value, make_folders)
    elif place := _read_place(option, value):
        yield from _read_binds(option, place, asked)


def _read_place(option: str, value: str) -> str:
    """Return the path at the end of an option's value; an empty text if there is none."""
    if option == METER_OPTION:
        meter, _, place = value.partition(":")
        return place if meter in METERS_WITH_PATHS else ""
    return value if value != SYNTHETIC else ""


def _absolute_value(option: str, value: str) -> str:
    place = _read_place(option, value) if option != OUTPUT_OPTION else ""
    return value.removesuffix(place) + str(_absolute(place)) if place else value


def _read_binds(option: str, value: str, asked: Sequence[Bind]) -> Iterator[Bind]:
    """Yield a file or folder, and what links in it lead to."""
    path = _absolute(value)
    host = _on_host(path, asked)
    if not host.exists():
        cause = f"{option} {value}: no such file or folder on this host"
        raise UsageError(cause, "correct the path", code="file-missing")
    if host == path:
        _require_bindable(option, value, path)
        yield Bind(path)
    if host.is_dir():
        yield from (Bind(target) for target in _targets_outside(host))


def _on_host(path: Path, asked: Sequence[Bind]) -> Path:
    """Return where the host has a path of the run."""
    above = [bind for bind in asked if bind.name is not None and _is_within(path, bind.target)]
    inner = max(above, key=lambda bind: len(bind.target.parts), default=None)
    return inner.path / path.relative_to(inner.target) if inner else path


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
    is_own = any(_is_within(path, folder) for folder in _OWN_FOLDERS)
    if is_own or str(path) in _IMAGE_FOLDERS:
        remedy = "use another path" if is_own else f"use a folder below {path}"
        raise UsageError(f"{option} {value}: it would hide {path} of the image", remedy, code="invalid-option")


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
    # pathlib keeps `..`, and POSIX two slashes at the begin, which Linux takes for one.
    return Path("/" + os.path.abspath(value).lstrip("/"))  # noqa: PTH100
