"""Reading result files: whatever a file contains, its problems are reported and the next one is read."""

import glob
import json
import os
import re
import shlex
import stat
from collections.abc import Hashable, Iterable, Iterator, Sized
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import orjson

from sifmark.core.console import counted
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import read_record
from sifmark.core.schemas import errors_of, explain_error, is_valid, known_versions
from sifmark.results.archive import result_names, split_archive, unpack_results
from sifmark.results.rules import oversized_of, violations_of

LARGEST_DOCUMENT = 16 * 1024**2  # bytes of one document; one with a thousand steps takes a hundredth of that
MOST_PROBLEMS = 20  # reported for one document
MOST_DESCRIBED = 5_000  # values of a document whose errors are described, which takes up to a second
SUFFIXES = (".json", ".jsonl")
REPORT_MARKER, SITE_MARKER = WRITTEN = (".report.json", ".sifmark-site.json")  # in what `report` and its site write
STUDY_MARKER = ".study.json"  # in the folder of a study
_SCHEMA = "result"
# Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class LoadedResult:
    """A document of a file, or a file that cannot be read. It is valid if there are no problems."""

    file: str
    document: dict[str, Any]  # empty if it is not even a JSON object
    problems: tuple[str, ...] = ()
    unpacked: str = ""  # where the file of an archive is, until the next one is asked for

    @property
    def path(self) -> Path:
        """The file that was read; its signature is beside it."""
        return Path(self.unpacked or self.file)


@dataclass(frozen=True, slots=True)
class StudyOwner:
    """The study whose results a folder has: what its marker says."""

    name: str
    title: str = ""
    digest: str = ""  # of the study's file


def load_all(paths: Iterable[str]) -> Iterator[LoadedResult]:
    """Yield every document of several files, folders, archives or globs. Raises UsageError for one that has none."""
    return chain.from_iterable(map(load_results, paths))


def load_results(path: str) -> Iterator[LoadedResult]:
    """Yield every document of a file, a folder, an archive, a part of one, or a glob.

    Raises UsageError if there is none. What is unpacked of an archive is removed when its last document was yielded.
    """
    empty = True
    for file, problem in result_files(path):
        empty = False
        if problem:
            yield LoadedResult(file, {}, (problem,))
        elif within := split_archive(file):
            yield from _load_archive(*within)
        else:
            yield from load_file(file)
    if empty:
        raise _no_result(path)


def require_valid(invalid: Sized, unsigned: Sized = (), more: str = "") -> None:
    """Raise SifmarkError for documents that are not valid or lack a required signature; `more` goes to the cause."""
    if invalid:
        remedy = "repair or remove them: sifmark results.validate lists the problems"
        cause = f"{counted(len(invalid), 'document is', 'documents are')} not valid{more}"
        raise SifmarkError(cause, remedy, code="result-invalid")
    if unsigned:
        cause = f"{counted(len(unsigned), 'document is', 'documents are')} not signed by a trusted key{more}"
        raise SifmarkError(cause, "leave them out, or trust their key: --key", code="signature-untrusted")


def run_keys(document: dict[str, Any]) -> Iterator[Hashable]:
    """Yield what no two runs have in common: their id, their place in time on a host, and the times of their steps.

    A copy under another id would be a repeat that nobody measured. Steps that all take equally long say nothing.
    """
    yield document["id"]
    if (host := document["host"]["hostname"]["value"]) is not None:
        yield host, document["started"], document["finished"]
    steps = document["steps"]
    quantiles = steps["quantiles"]
    if quantiles is not None and quantiles["p0"] != quantiles["p100"]:
        yield tuple(quantiles.values()) if steps["seconds"] is None else tuple(steps["seconds"])


class SeenRuns:
    """The runs of results that were read so far, each of which counts once."""

    def __init__(self) -> None:
        self._keys: set[Hashable] = set()

    def has_copy_of(self, document: dict[str, Any]) -> bool:
        """Return whether a result of the same run was seen before, and see this one."""
        keys = set(run_keys(document))
        is_copy = bool(keys & self._keys)
        self._keys |= keys
        return is_copy


def study_of(result: Path) -> str:
    """Return the name of the study whose folder a result is in; empty if it is in none."""
    return next((name for folder in result.parents[:2] if (name := _study_name(folder))), "")


@lru_cache(maxsize=16)  # the results of a folder follow each other
def _study_name(folder: Path) -> str:
    owner = owner_of(folder)
    return owner.name if owner else ""


def owner_of(folder: Path) -> StudyOwner | None:
    """Return whose results a folder has; None if it is of no study."""
    return read_record(folder / STUDY_MARKER, StudyOwner)


def files_of(paths: Iterable[str]) -> Iterator[str]:
    """Yield the result files of several files, folders or globs. Raises SifmarkError for one that has none."""
    for path in paths:
        if split_archive(path):
            remedy = f"unpack it: tar -xzf {shlex.quote(path)}; sifmark results.trace reads signatures in archives"
            raise UsageError(f"{path} is an archive, not a file of results", remedy, code="result-missing")
        files = list(result_files(path))
        if not files:
            raise _no_result(path)
        for file, problem in files:
            if problem:
                raise SifmarkError(f"{file} {problem}", "make it readable", code="file-unreadable")
            yield file


def _no_result(path: str) -> UsageError:
    remedy = "name a .json or .jsonl file, a folder with some, an archive, or a quoted glob"
    return UsageError(f"no result at {path}", remedy, code="result-missing")


def _load_archive(archive: str, within: str) -> Iterator[LoadedResult]:
    """Yield the documents of an archive, or of the member or folder `within` it; one with the problem if it is bad."""
    with TemporaryDirectory(prefix="sifmark-") as folder:
        try:
            names = result_names(unpack_results(Path(archive), Path(folder)), within)
        except SifmarkError as error:
            yield LoadedResult(archive, {}, (error.cause.removeprefix(archive).lstrip(": "),))
            return
        except OSError as error:
            yield LoadedResult(archive, {}, (f"does not read: {error.strerror or error}",))
            return
        if not names:
            raise _no_result(f"{archive}/{within}".rstrip("/"))
        for name in names:
            path = str(Path(folder, name))
            for result in load_file(path):
                yield replace(result, file=f"{archive}/{name}", unpacked=path)


def load_file(file: str) -> Iterator[LoadedResult]:
    """Yield the documents of a file: one in `.json`, one per line in `.jsonl`."""
    by_line = file.endswith(".jsonl")
    number = 0
    try:
        with _open(file) as stream:
            for number, text in enumerate(_lines(stream) if by_line else [_read(stream)], start=1):
                document, problems = load_text(text)
                prefix = f"document {number}: " if by_line else ""
                yield LoadedResult(file, document, tuple(prefix + problem for problem in problems))
    except OSError as error:
        yield LoadedResult(file, {}, (f"does not read: {error.strerror or error}",))
    else:
        if not number:
            yield LoadedResult(file, {}, ("holds no document",))


def load_text(text: bytes) -> tuple[dict[str, Any], list[str]]:
    """Return a document, empty if it is no JSON object, and its problems."""
    if len(text) > LARGEST_DOCUMENT:
        return {}, [f"is larger than {LARGEST_DOCUMENT // 1024**2} MiB, which no result is"]
    try:
        document = parse(text)
    except ValueError as error:
        return {}, [f"is not JSON: {error}"]
    if not isinstance(document, dict):
        return {}, ["is not an object"]
    return document, document_problems(document, text.decode())


def parse(text: bytes) -> Any:
    """Return the JSON value of a text. Raises ValueError for NaN, infinity, lone surrogates, equal keys and the like.

    orjson checks the syntax but keeps the last of two equal keys. If no character is escaped, strings are the same in
    the text and in what orjson writes, so that a lost key shows as a missing colon.
    """
    document = orjson.loads(text)
    try:
        written = orjson.dumps(document)
    except TypeError:
        raise ValueError("nested deeper than 254 levels") from None
    if b"\\" in text or text.count(b":") != written.count(b":"):
        json.loads(text, object_pairs_hook=_no_duplicates)
    return document


def document_problems(document: dict[str, Any], text: str | None = None) -> list[str]:
    """Return the problems of a document: with exactly the schema version that it names, or, if none, with itself."""
    version = document.get("schema_version")
    if "schema_version" not in document:
        record = "what benchmarks/device.py keeps of an experiment, and " if "experiment" in document else ""
        return [f"is {record}not a sifmark result: it has no schema_version"]
    if version not in _versions():
        return [_unknown_version(version)]
    schema = f"{_SCHEMA}-{version}"
    if text is not None and text.count(",") > MOST_DESCRIBED:  # what describes errors reads all of it, and slowly
        if oversized := list(islice(oversized_of()(document, text), MOST_PROBLEMS)):
            return oversized
        if not is_valid(schema, document):
            return [f"is not as {schema} says, and too large to say where"]
    errors = list(islice(errors_of(schema, document), MOST_PROBLEMS))
    if errors:
        return [explain_error(error) for error in sorted(errors, key=lambda error: list(map(str, error.path)))]
    return list(islice(violations_of()(document, text), MOST_PROBLEMS))


def _unknown_version(version: Any) -> str:
    """Return the problem of a document of another schema version."""
    numbers = [tuple(map(int, text.split("."))) for text in _versions()]
    match = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", version) if isinstance(version, str) else None
    readable = ", ".join(_versions())
    if match and (int(match[1]), int(match[2])) > max(numbers):
        return f"schema_version: {version!r} is of a newer sifmark; upgrade this one, which reads {readable}"
    return f"schema_version: {version!r:.80} is not one that this sifmark reads ({readable})"


@cache
def _versions() -> tuple[str, ...]:
    return tuple(known_versions(_SCHEMA))


def result_files(path: str) -> Iterator[tuple[str, str]]:
    """Yield the files at a path, and folders that cannot be searched with the reason. A name that exists is no glob."""
    for name in [path] if os.path.lexists(path) or split_archive(path) else sorted(glob.glob(path, recursive=True)):  # noqa: PTH207
        yield from _walk(name) if Path(name).is_dir() else [(name, "")]


def _walk(root: str) -> Iterator[tuple[str, str]]:
    """Yield result files below a folder, by name. Links are followed, and no folder is entered twice.

    Names that begin with a dot are left out: they are drafts of files that are being written. So are folders of
    reports and sites, whose JSON files are none of results.
    """
    pending, entered = [root], set()
    while pending:
        folder = pending.pop()
        try:
            status = Path(folder).stat()
            if (status.st_dev, status.st_ino) in entered:
                continue
            entered.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as entries:
                every = sorted((entry.name, entry) for entry in entries)
        except OSError as error:
            yield folder, f"does not read: {error.strerror}"
            continue
        if any(name in WRITTEN for name, _ in every):
            continue
        ordered = [(name, entry) for name, entry in every if not name.startswith(".")]
        folders = [entry.path for _, entry in ordered if _is_folder(entry)]
        folder_paths = set(folders)
        for name, entry in ordered:
            if name.endswith(SUFFIXES) and entry.path not in folder_paths:
                yield entry.path, ""
        pending += reversed(folders)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself: reported when it is opened, if its name is that of a result
        return False


def _open(file: str) -> BinaryIO:
    descriptor = os.open(file, _OPEN_FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is not an ordinary file")
    return open(descriptor, "rb")  # noqa: PTH123 - pathlib opens without these flags


def _read(stream: BinaryIO) -> bytes:
    """Return a file's content, or as much as shows that it is too large, without a buffer for the largest document."""
    size = os.fstat(stream.fileno()).st_size or LARGEST_DOCUMENT  # 0 on some file systems that do not know it
    return stream.read(min(size, LARGEST_DOCUMENT) + 1)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines that are not blank; of a line that is too long, as much as shows that it is."""
    while line := stream.readline(LARGEST_DOCUMENT + 1):
        rest = line
        while len(rest) > LARGEST_DOCUMENT and not rest.endswith(b"\n"):
            rest = stream.readline(LARGEST_DOCUMENT + 1)
        if not line.isspace():
            yield line.removesuffix(b"\n")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, value in pairs:
        if key in document:
            raise ValueError(f"key {key!r:.80} occurs twice")
        document[key] = value
    return document
