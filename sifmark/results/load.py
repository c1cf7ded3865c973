"""Result files, read with suspicion: whatever a file holds, it is judged, and the next one is read."""

import glob
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from sifmark.core.errors import UsageError
from sifmark.core.schemas import errors_of, explain_error, known_versions

LARGEST = 16 * 1024**2  # bytes of one document; one with a thousand steps takes a hundredth of that
MOST_PROBLEMS = 20  # told of one document
SUFFIXES = (".json", ".jsonl")
_KIND = "result"
# Opening a pipe that nobody writes to would wait for ever.
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class LoadedResult:
    """A document of a file, or a file that does not read. Valid where there are no problems."""

    file: str
    document: dict[str, Any]  # empty where it is not even a JSON object
    problems: tuple[str, ...] = ()


def load_results(path: str) -> Iterator[LoadedResult]:
    """Every document that a file, a folder or a glob means. Raises UsageError where it means none."""
    found = False
    for file, trouble in _find(path):
        found = True
        yield from [LoadedResult(file, {}, (trouble,))] if trouble else load_file(file)
    if not found:
        raise UsageError(f"no result at {path}", "name a .json or .jsonl file, a folder with some, or a quoted glob")


def load_file(file: str) -> Iterator[LoadedResult]:
    """The documents of a file: one in `.json`, one per line in `.jsonl`."""
    several = file.endswith(".jsonl")
    number = 0
    try:
        with _open(file) as stream:
            for number, text in enumerate(_lines(stream) if several else [_whole(stream)], start=1):
                document, problems = load_text(text)
                place = f"document {number}: " if several else ""
                yield LoadedResult(file, document, tuple(place + problem for problem in problems))
    except OSError as error:
        yield LoadedResult(file, {}, (f"does not read: {error.strerror or error}",))
    else:
        if not number:
            yield LoadedResult(file, {}, ("holds no document",))


def load_text(text: bytes) -> tuple[dict[str, Any], list[str]]:
    """A document and what is wrong with it."""
    if len(text) > LARGEST:
        return {}, [f"is larger than {LARGEST // 1024**2} MiB, which no result is"]
    try:
        document = parse(text)
    except ValueError as error:
        return {}, [f"is not JSON: {error}"]
    if not isinstance(document, dict):
        return {}, ["is not an object"]
    return document, document_problems(document)


def parse(text: bytes) -> Any:
    """The JSON value of a text. Raises ValueError for what JSON has not: NaN, infinity, half characters, a key twice.

    orjson says what JSON is, and keeps the last of two equal keys. Where no character is escaped, strings stand as they
    are in the text and in what orjson writes, so that a key that was lost takes a colon with it.
    """
    document = orjson.loads(text)
    try:
        written = orjson.dumps(document)
    except TypeError:
        raise ValueError("nested deeper than 254 levels") from None
    if b"\\" in text or text.count(b":") != written.count(b":"):
        json.loads(text, object_pairs_hook=_no_duplicates)
    return document


def document_problems(document: dict[str, Any]) -> list[str]:
    """What is wrong with a document, checked against exactly the schema version it names."""
    version = document.get("schema_version")
    if version not in _versions():
        return [f"schema_version: {version!r:.80} is not one that this sifmark reads ({', '.join(_versions())})"]
    errors = list(islice(errors_of(f"{_KIND}-{version}", document), MOST_PROBLEMS))
    return [explain_error(error) for error in sorted(errors, key=lambda error: list(map(str, error.path)))]


def problems_of(file: Path) -> list[str]:
    """What is wrong with a file, one line per field; empty when all its documents are valid."""
    return [problem for judged in load_file(str(file)) for problem in judged.problems]


@cache
def _versions() -> tuple[str, ...]:
    return tuple(known_versions(_KIND))


def _find(path: str) -> Iterator[tuple[str, str]]:
    """Files, and for what cannot be searched, why. A name that exists is no glob."""
    for name in [path] if os.path.lexists(path) else sorted(glob.glob(path, recursive=True)):  # noqa: PTH207
        yield from _walk(name) if Path(name).is_dir() else [(name, "")]


def _walk(top: str) -> Iterator[tuple[str, str]]:
    """Result files below a folder, in order of name; links are followed, and no folder is entered twice.

    Names that begin with a dot are drafts of files that are being written.
    """
    waiting, entered = [top], set()
    while waiting:
        folder = waiting.pop()
        try:
            status = Path(folder).stat()
            if (status.st_dev, status.st_ino) in entered:
                continue
            entered.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as entries:
                ordered = sorted((entry.name, entry) for entry in entries if not entry.name.startswith("."))
        except OSError as error:
            yield folder, f"does not read: {error.strerror}"
            continue
        folders = [entry.path for _, entry in ordered if _is_folder(entry)]
        inside = set(folders)
        for name, entry in ordered:
            if name.endswith(SUFFIXES) and entry.path not in inside:
                yield entry.path, ""
        waiting += reversed(folders)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself: told when it is opened, if its name is a result's
        return False


def _open(file: str) -> BinaryIO:
    descriptor = os.open(file, _OPEN)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is not an ordinary file")
    return open(descriptor, "rb")  # noqa: PTH123 - pathlib opens without these flags


def _whole(stream: BinaryIO) -> bytes:
    """All of a file, or as much as shows that it is too large. A buffer is made for what is asked for, not for more."""
    size = os.fstat(stream.fileno()).st_size or LARGEST  # some file systems do not know it
    return stream.read(min(size, LARGEST) + 1)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines that are not blank. Of one that is too long, as much as shows that it is."""
    while line := stream.readline(LARGEST + 1):
        rest = line
        while len(rest) > LARGEST and not rest.endswith(b"\n"):
            rest = stream.readline(LARGEST + 1)
        if not line.isspace():
            yield line.removesuffix(b"\n")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, value in pairs:
        if key in document:
            raise ValueError(f"key {key!r:.80} occurs twice")
        document[key] = value
    return document
