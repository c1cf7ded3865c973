"""Archives of studies: one file with the results of a study and all that they rest on.

An archive is a tar file (POSIX ustar), compressed by gzip: `manifest.json`, which `schemas/archive-1.1.json` describes,
then the members that it lists, in its order. Every byte follows from the contents: headers carry no date and no owner.
A reader accepts nothing else, so that links, folders, devices, second members of a name and paths that lead out of the
archive cannot occur. It needs no more memory than the manifest does, and no more disk than the sizes in that.
"""

import gzip
import hashlib
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import FIXED_MTIME, atomic_path, compact_json, human_size, read_bounded
from sifmark.core.schemas import check_document, read_schema

SUFFIX = ".tar.gz"
MANIFEST = "manifest.json"
SCHEMA, VERSION = "archive-1.1", "1.1"
LARGEST_MEMBER = 256 * 1024**2  # bytes, as the schema says
LARGEST_MANIFEST = 64 * 1024**2  # bytes; 100,000 members take a third of it
LARGEST_ARCHIVE = 8 * 1024**3  # bytes of all members together, unpacked
LOADED = ("result", "signature")  # kinds of members that are unpacked to be read
_BLOCK = tarfile.BLOCKSIZE
_CHUNK = 1024**2  # bytes
_REMEDY = "ask for the archive again; sifmark study.archive writes it"


@dataclass(frozen=True)
class Member:
    """A file of an archive: its content, or the path where that is."""

    name: str
    kind: str
    content: bytes | Path

    def read(self) -> bytes:
        """Return the content. Raises OSError if a file does not read, SifmarkError if it is too large."""
        if isinstance(self.content, bytes):
            return self.content
        try:
            return read_bounded(self.content, LARGEST_MEMBER)
        except ValueError as error:
            cause = f"{self.content}: {error}, and an archive takes no larger ones"
            raise SifmarkError(cause, "shorten or remove the file", code="archive-invalid") from error


def is_archive(path: str) -> bool:
    """Return whether a name is that of an archive."""
    return path.endswith(SUFFIX)


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a member."""
    rule = read_schema(SCHEMA)["$defs"]["name"]
    return len(text) <= rule["maxLength"] and re.search(rule["pattern"], text) is not None


def split_archive(path: str) -> tuple[str, str] | None:
    """Return an archive and what is meant in it, for a path that leads into one: `FILE.tar.gz/results/quick`.

    What is meant is empty for the archive itself. None for a path that leads into no archive.
    """
    whole = Path(path)
    for parent in (whole, *whole.parents):
        if is_archive(parent.name) and parent.is_file():
            return str(parent), "/".join(whole.parts[len(parent.parts) :])
    return None


def write_archive(target: Path, fields: Mapping[str, Any], members: Iterable[Member]) -> dict[str, Any]:
    """Write an archive completely or not at all. Return its manifest: `fields`, and the list of members.

    Raises SifmarkError for a member that is too large, or that changes while it is written.
    """
    ordered = sorted(members, key=lambda member: member.name)
    manifest = {**fields, "schema_version": VERSION, "members": list(map(_describe, ordered))}
    _check_manifest(manifest, str(target))
    with (
        atomic_path(target) as draft,
        draft.open("wb") as file,
        # A name or a date in the header of gzip would make other bytes of the same contents.
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as stream,
    ):
        _write_member(stream, MANIFEST, compact_json(manifest))
        for member, entry in zip(ordered, manifest["members"], strict=True):
            _write_member(stream, member.name, _unchanged(member, entry["sha256"]))
        stream.write(bytes(2 * _BLOCK))
    return manifest


def unpack_results(archive: Path, folder: Path) -> dict[str, Any]:
    """Check all of an archive, and unpack its results and their signatures into an empty folder of this user.

    Return the manifest. Raises SifmarkError for anything that is not exactly as the manifest says; then nothing in the
    folder may be used.
    """
    try:
        with gzip.GzipFile(archive, "rb") as stream:
            manifest = _read_manifest(stream, archive)
            for entry in manifest["members"]:
                _require_header(stream, archive, entry["name"], entry["size"])
                _read_member(stream, archive, entry, folder)
            _require_end(stream, archive)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _invalid(archive, f"is damaged: {error}") from error
    return manifest


def result_names(manifest: Mapping[str, Any], within: str = "") -> Sequence[str]:
    """Return the names of an archive's results; those of `within` alone, a member or a folder of the archive."""
    names = [entry["name"] for entry in manifest["members"] if entry["kind"] == "result"]
    return [name for name in names if not within or name == within or name.startswith(f"{within}/")]


def _describe(member: Member) -> dict[str, Any]:
    content = member.read()
    digest = hashlib.sha256(content).hexdigest()
    return {"name": member.name, "kind": member.kind, "size": len(content), "sha256": digest}


def _write_member(stream: gzip.GzipFile, name: str, content: bytes) -> None:
    stream.write(_header(name, len(content)))
    stream.write(content)
    stream.write(bytes(_padding(len(content))))


def _unchanged(member: Member, sha256: str) -> bytes:
    """Return the content of a member. Raises SifmarkError if it is no longer that which was hashed."""
    content = member.read()
    if hashlib.sha256(content).hexdigest() != sha256:
        cause = f"{member.name} was changed while the archive was written"
        raise SifmarkError(cause, "write it when no run is in progress", code="digest-mismatch")
    return content


def _header(name: str, size: int) -> bytes:
    """Return the header of a member, of which an archive may have no other. Raises UsageError for a long name."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o644, FIXED_MTIME
    try:
        return info.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")
    except ValueError as error:
        cause = f"{name} is no name for a member of an archive: {error}"
        raise UsageError(cause, "shorten the names of the study and its systems", code="archive-invalid") from error


def _padding(size: int) -> int:
    return -size % _BLOCK


def _read_manifest(stream: gzip.GzipFile, archive: Path) -> dict[str, Any]:
    header = _read(stream, _BLOCK)
    try:
        info = tarfile.TarInfo.frombuf(header, "ascii", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError) as error:
        raise _invalid(archive, f"is no archive of a study: {error}") from error
    if not 0 <= info.size <= LARGEST_MANIFEST or header != _header(MANIFEST, info.size):
        raise _invalid(archive, f"is no archive of a study: it does not begin with {MANIFEST}")
    try:
        text = _read(stream, info.size)
        manifest = json.loads(text, object_pairs_hook=_unique_keys, parse_float=_no_fraction)
    except (ValueError, RecursionError) as error:
        raise _invalid(archive, f"has a manifest that is not JSON: {error}") from error
    _require_padding(stream, archive, info.size)
    _check_manifest(manifest, str(archive))
    return dict(manifest)


def _check_manifest(manifest: Any, where: str) -> None:
    """Raise SifmarkError unless a manifest is valid, with names in order and no more than an archive may hold."""
    check_document(SCHEMA, manifest, f"{where}: {MANIFEST}", "archive-invalid")
    names = [entry["name"] for entry in manifest["members"]]
    if names != sorted(set(names)):
        raise SifmarkError(f"{where}: its members are not in order, each once", _REMEDY, code="archive-invalid")
    files = [name.lower() for name in (*names, MANIFEST)]  # which some file systems take for the same names
    folders = {str(folder) for name in files for folder in PurePosixPath(name).parents}
    if len(set(files)) < len(files) or folders.intersection(files):
        cause = f"{where}: two members have one name, or a member has the name of another's folder"
        raise SifmarkError(cause, _REMEDY, code="archive-invalid")
    if (size := sum(entry["size"] for entry in manifest["members"])) > LARGEST_ARCHIVE:
        cause = f"{where} holds {human_size(size)}; {human_size(LARGEST_ARCHIVE)} are allowed"
        raise SifmarkError(cause, "archive the systems of the study one by one: --system NAME", code="archive-invalid")


def _require_header(stream: gzip.GzipFile, archive: Path, name: str, size: int) -> None:
    """Raise SifmarkError unless the next header is that of a member of this name and size, and nothing else."""
    header = _read(stream, _BLOCK)
    if header == _header(name, size):
        return
    try:
        info = tarfile.TarInfo.frombuf(header, "ascii", "replace")
        actual = f"{_kind(info)} {info.name!r:.100} of {info.size} bytes"
    except tarfile.HeaderError as error:
        actual = f"something else: {error}"
    raise _invalid(archive, f"is not as its manifest says: {name!r} of {size} bytes should follow, not {actual}")


def _kind(info: tarfile.TarInfo) -> str:
    if info.issym() or info.islnk():
        return f"a link to {info.linkname!r:.100},"
    return "a file" if info.isreg() else "something that is no file,"


def _read_member(stream: gzip.GzipFile, archive: Path, entry: Mapping[str, Any], folder: Path) -> None:
    """Read and check a member. What results are read from is written below a folder."""
    digest, rest = hashlib.sha256(), entry["size"]
    with _unpacked(entry, folder) as write:
        while rest:
            chunk = _read(stream, min(rest, _CHUNK))
            digest.update(chunk)
            write(chunk)
            rest -= len(chunk)
    if digest.hexdigest() != entry["sha256"]:
        raise _invalid(archive, f"was altered: {entry['name']!r} does not have the hash that its manifest says")
    _require_padding(stream, archive, entry["size"])


@contextmanager
def _unpacked(entry: Mapping[str, Any], folder: Path) -> Iterator[Callable[[bytes], object]]:
    """Yield what takes the content of a member: a file below a folder, if results are read from it."""
    if entry["kind"] not in LOADED:
        yield len
        return
    target = folder.joinpath(*PurePosixPath(entry["name"]).parts)  # whose form the schema has checked
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        yield file.write


def _require_padding(stream: gzip.GzipFile, archive: Path, size: int) -> None:
    if any(_read(stream, _padding(size))):
        raise _invalid(archive, "holds something between its members")


def _require_end(stream: gzip.GzipFile, archive: Path) -> None:
    """Raise SifmarkError unless the end of the archive follows, and after it nothing."""
    if any(_read(stream, 2 * _BLOCK)) or stream.read(1):
        raise _invalid(archive, "holds something that its manifest does not list")


def _read(stream: gzip.GzipFile, size: int) -> bytes:
    """Read exactly so many bytes. Raises EOFError."""
    parts = []
    while size:
        if not (part := stream.read(size)):
            raise EOFError("it ends too early")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a key occurs twice")
    return document


def _no_fraction(text: str) -> NoReturn:
    """Refuse `1.0` and `1e3`, which JSON Schema takes for whole numbers."""
    raise ValueError(f"{text:.20} is not written as a whole number")


def _invalid(archive: Path, problem: str) -> SifmarkError:
    return SifmarkError(f"{archive} {problem}", _REMEDY, code="archive-invalid")
