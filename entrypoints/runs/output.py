"""Destinations of result documents: each is checked against its schema, then written completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import socket
import stat
from importlib import metadata
from pathlib import Path
from typing import Any, Iterator, Mapping, Protocol

from entrypoints.contract.statuses import UsageError
from entrypoints.system import image
from entrypoints.system.console import status
from entrypoints.system.image import binding_hint

SCHEMA = Path(__file__).resolve().parents[2] / "schemas" / "result-1.2.json"
STDOUT = 1
ON_STDOUT = "-"  # the value of --output
KEPT = "results/"
ROOM = 1 << 20  # bytes that must be free before a run: more than most results have
MOST_LINKS = 40  # as in Linux
SHORT = 12  # hexadecimal digits of a hash in a file's name


class Writer(Protocol):
    """A destination for documents. Each is written at once, completely or not at all."""

    def write(self, document: Mapping[str, Any]) -> str | None:
        """Write one document and return the file's path, None for standard output.

        Raises OSError if the destination has failed since it was checked.
        """


def open_writer(output: str | None, count: int, one_a_line: bool = False) -> Writer:
    """Return the destination `output` for `count` documents. Raises UsageError, before any run, if it is unusable.

    On standard output several documents are written one a line, and so is a single one if programs expect several.
    Without an `output`, that is for programs: where a person watches, the documents go to a folder.
    """
    if output is None and os.isatty(STDOUT):
        kept = _kept_results()
        if kept is not None:
            return kept
    if output in (None, ON_STDOUT):
        return Stdout(indented=count == 1 and not one_a_line)
    _require_own_links(output)
    target = Path(output).resolve()  # through links, which remain links
    if output and (output.endswith("/") or target.is_dir()):
        return ResultFolder(output, target)
    if target.suffix == ".jsonl":
        return ResultLines(output, target)
    if count > 1:
        raise UsageError(
            f"--output {output}: one file contains one result, and {count} are requested",
            "name a folder, as in --output results/, or a file that ends in .jsonl",
        )
    return ResultFile(output, target)


def _kept_results() -> ResultFolder | None:
    """Return the folder `results/` of the current folder; None where it cannot be made or ends with the container."""
    if not image.folder_outlives_container():
        return None
    try:
        return ResultFolder(KEPT, Path(KEPT).resolve())
    except UsageError:
        return None


class Stdout:
    """Standard output: one document for people to read, or several with one a line."""

    def __init__(self, indented: bool) -> None:
        self.text = indented_text if indented else line_text

    def write(self, document: Mapping[str, Any]) -> None:
        """Write past `sys.stdout`, whose buffer would fail again at exit if the reader is gone."""
        write_all(STDOUT, self.text(document))


class ResultFile:
    """One file with one document, replacing an older one."""

    def __init__(self, output: str, target: Path) -> None:
        self.output, self.target = output, target
        _require_file(output, target)
        _require_writable(output, target.parent)

    def write(self, document: Mapping[str, Any]) -> str:
        """Replace the file."""
        if self.target.exists():
            status(f"{self.output} replaces an older result")
        with draft_file(self.target.parent, indented_text(document)) as temporary:
            temporary.replace(self.target)
        return self.output


class ResultLines:
    """A file of JSON Lines to which documents are appended. Several processes may append to one file."""

    def __init__(self, output: str, target: Path) -> None:
        self.output, self.target = output, target
        _require_file(output, target)
        _require_writable(output, target.parent)

    def write(self, document: Mapping[str, Any]) -> str:
        """Append a line; one that does not fit on the disk leaves nothing behind."""
        descriptor = os.open(self.target, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            with contextlib.suppress(OSError):  # a file system without locks; released when the file is closed
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            size = os.fstat(descriptor).st_size
            torn = size and os.pread(descriptor, 1, size - 1) != b"\n"  # by a machine that lost power
            try:
                write_all(descriptor, b"\n" * bool(torn) + line_text(document))
                os.fsync(descriptor)
                if not size:  # the name is new
                    _sync_folder(self.target.parent)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
        return self.output


class ResultFolder:
    """A folder with a file for each result: `<workload>-<recipe>-<start in UTC>-<hash>.json`, never overwritten."""

    def __init__(self, output: str, folder: Path) -> None:
        self.output, self.folder = output, folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            cause = f"--output {output}: cannot make that folder: {error.strerror}"
            raise UsageError(cause, f"name another{binding_hint(folder)}", "system-error") from None
        _require_writable(output, folder)

    def write(self, document: Mapping[str, Any]) -> str:
        """Add a file. The same document twice is one file."""
        data = indented_text(document)
        with draft_file(self.folder, data) as temporary:
            for target in (self.folder / name for name in file_names(document, data)):
                if _place(temporary, target) or target.read_bytes() == data:
                    return str(Path(self.output) / target.name)
        raise FileExistsError(errno.EEXIST, "another file has that name", str(target))


def file_names(document: Mapping[str, Any], data: bytes) -> tuple[str, str]:
    """Return the file's name in a store, and the name if that is taken: with more of the hash."""
    configuration, image = document["configuration"], document["provenance"]["image"]
    # Without a recipe, and so an image: framework and device, in a form that no recipe's name has.
    recipe = image["recipe"] if image else f"{configuration['framework']}_{configuration['device']}"
    start = re.sub("[-:.]", "", document["started"])
    digest = hashlib.sha256(data).hexdigest()
    stem = f"{document['workload']['name']}-{recipe}-{start}"
    return f"{stem}-{digest[:SHORT]}.json", f"{stem}-{digest}.json"


def _place(temporary: Path, target: Path) -> bool:
    """Give the file its name, unless that is taken; return whether it was free."""
    try:
        os.link(str(temporary), str(target))
    except FileExistsError:
        return False
    except OSError:  # no hard links here. A file that comes after the check has our hash, and bytes
        if target.exists():
            return False
        temporary.rename(target)
    return True


def indented_text(document: Mapping[str, Any]) -> bytes:
    """Return the document for people to read."""
    return json.dumps(document, indent=2, allow_nan=False).encode() + b"\n"


def line_text(document: Mapping[str, Any]) -> bytes:
    """Return the document as one line."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte."""
    while data:
        data = data[os.write(descriptor, data) :]


@contextlib.contextmanager
def draft_file(folder: Path, data: bytes = b"") -> Iterator[Path]:
    """Yield a draft file, synced to disk, under a name that nobody reads; it is removed at the end if not renamed."""
    # The process ID alone is not unique if hosts share a file system.
    temporary = folder / f".sifmark.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
        _sync_folder(folder)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _sync_folder(folder: Path) -> None:
    """Sync the new name to disk too."""
    with contextlib.suppress(OSError):  # some network file systems refuse
        descriptor = os.open(str(folder), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _require_own_links(output: str) -> None:
    """Raise UsageError if the path leads through a link that the kernel would not follow (fs.protected_symlinks).

    Resolving a path reads its links one by one, which the kernel does not see: a link of another user in /tmp would
    choose what is overwritten.
    """
    for link in _links(Path(output)):
        if _is_strangers(link):
            raise UsageError(
                f"--output {output}: {link} is a link of another user in a folder that all may write to",
                "name another place",
            )


def _links(path: Path) -> Iterator[Path]:
    """Yield the links that a path leads through, up to a loop."""
    folder, *parts = path.absolute().parts
    current, pending, followed = Path(folder), parts[::-1], 0
    while pending and followed < MOST_LINKS:
        name = pending.pop()
        step = current.parent if name == ".." else current / name
        if not step.is_symlink():
            current = step
            continue
        yield step
        followed += 1
        target = Path(os.readlink(str(step)))  # Path.readlink is of Python 3.9
        if target.is_absolute():
            current = Path(target.anchor)
        pending += [part for part in reversed(target.parts) if part != target.anchor]


def _is_strangers(link: Path) -> bool:
    """Return whether a link in a sticky folder that others may write to is neither ours nor the folder's owner's."""
    folder, owner = link.parent.stat(), link.lstat().st_uid
    open_to_all = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    return bool(open_to_all) and owner not in (os.geteuid(), folder.st_uid)


def _require_file(output: str, target: Path) -> None:
    if target.exists() and not target.is_file():
        raise UsageError(
            f"--output {output}: that is no regular file", "name a file or a folder, or leave --output out"
        )
    if not target.parent.is_dir():
        remedy = f"make it first: mkdir -p {target.parent}{binding_hint(target.parent)}"
        raise UsageError(f"--output {output}: there is no folder {target.parent}", remedy, "file-missing")
    if not {Path(output).suffix, target.suffix} & {".json", ".jsonl"}:
        raise UsageError(
            f"--output {output}: a file's name ends in .json or .jsonl", f"for a folder, end it in a slash: {output}/"
        )


def _require_writable(output: str, folder: Path) -> None:
    try:
        with draft_file(folder, bytes(ROOM)):  # permissions alone prove nothing: the file system may be read-only
            pass
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            cause = f"--output {output}: {error.strerror} in {folder}"
            raise UsageError(cause, "free space there, or name a folder on another disk", "disk-full") from None
        reason = f"{error.strerror} in {folder}"
        raise UsageError(
            f"--output {output}: {reason}", "name a folder that this user may write to", "system-error"
        ) from None


class ResultSchema:
    """The schema of the document. Raises UsageError if jsonschema is missing."""

    def __init__(self) -> None:
        try:
            import jsonschema  # late: --help and --list do not need it
        except ImportError as error:
            raise UsageError(
                f"cannot check results: {error}", "install jsonschema 4.17 or later", "package-missing"
            ) from None
        self.library_version = metadata.version("jsonschema")
        self.validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")))

    def problems(self, document: Mapping[str, Any], limit: int = 5) -> list[str]:
        """Return the schema's objections, each with its path."""
        errors = sorted(self.validator.iter_errors(document), key=lambda error: error.json_path)
        return [f"{error.json_path}: {error.message[:200]}" for error in errors[:limit]]
