"""The first difference between two SIF files, down to the file inside."""

import json
import tempfile
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sifmark.core.files import sha256_file
from sifmark.engines.apptainer.sif import METADATA, PARTITION, SBOM, SIGNATURE, Sif, SifDescriptor, read_sif
from sifmark.engines.apptainer.squashfs import ROOT, extract, list_files

_COLUMNS = ("mode", "owner", "size", "date", "time", "name")  # of a row of `unsquashfs -lls`
_LONGEST_VALUE = 80  # characters of a JSON value that a difference quotes


@dataclass(frozen=True)
class _Object:
    """One object of one of the two files."""

    sif: Sif
    entry: SifDescriptor

    @property
    def content(self) -> bytes:
        return self.sif.read(self.entry)

    @property
    def digest(self) -> bytes:
        return self.sif.digest(self.entry)

    def __str__(self) -> str:
        return f"an object of type {self.entry.kind:#x} {self.entry.name!r}"


def difference(first: Path, second: Path, time_limit: float) -> str | None:
    """Return what differs first between two images, signatures aside, or None if nothing does.

    `time_limit` is in seconds, for unpacking a file system. Raises SifmarkError if one is no SIF.
    """
    files = read_sif(first), read_sif(second)
    for left, right in zip_longest(*map(_unsigned_objects, files)):
        if left is None or right is None or (left.entry.kind, left.entry.name) != (right.entry.kind, right.entry.name):
            return f"one has {left or 'nothing'} where the other has {right or 'nothing'}"
        if text := _compare_objects(left, right, time_limit):
            return text
    signed = any(entry.kind == SIGNATURE for sif in files for entry in sif.descriptors)
    if not signed and sha256_file(first) != sha256_file(second):
        return "all objects are the same, and the header or the table before them is not"
    return None


def _unsigned_objects(sif: Sif) -> list[_Object]:
    return [_Object(sif, entry) for entry in sif.descriptors if entry.kind != SIGNATURE]


def _compare_objects(left: _Object, right: _Object, time_limit: float) -> str | None:
    if left.digest == right.digest:
        return None
    if left.entry.kind == PARTITION:
        return _compare_trees(left, right, time_limit)
    name = left.entry.name
    if left.entry.kind in (METADATA, SBOM):
        return _compare_values(f"{name or left.entry.kind}", json.loads(left.content), json.loads(right.content))
    lines = zip_longest(left.content.decode().splitlines(), right.content.decode().splitlines())
    number, (ours, theirs) = next((n, pair) for n, pair in enumerate(lines, start=1) if pair[0] != pair[1])
    return f"{name or 'the definition'}, line {number}: {ours!r} and {theirs!r}"


def _compare_values(where: str, left: Any, right: Any) -> str | None:
    """Return the first JSON field that differs, by its path."""
    if isinstance(left, list) and isinstance(right, list):
        left, right = dict(enumerate(left)), dict(enumerate(right))
    elif not (isinstance(left, dict) and isinstance(right, dict)):
        return None if left == right else f"{where}: {_shorten(left)} and {_shorten(right)}"
    for field in sorted(left.keys() | right.keys()):
        if text := _compare_values(f"{where}: {field}", left.get(field), right.get(field)):
            return text
    return None


def _compare_trees(left: _Object, right: _Object, time_limit: float) -> str:
    return (
        _compare_rows(_rows(left), _rows(right))
        or _compare_contents(left, right, time_limit)
        or "the file systems hold the same files, packed in another way"
    )


def _rows(system: _Object) -> dict[str, tuple[str, ...]]:
    return {row[-1]: row for row in list_files(system.sif.path, system.entry.offset)}


def _compare_rows(left: dict[str, tuple[str, ...]], right: dict[str, tuple[str, ...]]) -> str | None:
    for name in sorted(left.keys() | right.keys()):
        path = f"/{name.removeprefix(ROOT)}"
        if name not in left or name not in right:
            return f"{path} is in one image only"
        for column, ours, theirs in zip(_COLUMNS, left[name], right[name], strict=False):
            if ours != theirs:
                return f"{path}: its {column} is {ours} and {theirs}"
    return None


def _compare_contents(left: _Object, right: _Object, time_limit: float) -> str | None:
    with tempfile.TemporaryDirectory(prefix="sifmark-", dir=left.sif.path.parent) as name:
        ours, theirs = (
            extract(system.sif.path, system.entry.offset, Path(name, side), time_limit)
            for side, system in (("left", left), ("right", right))
        )
        for path in sorted(path for path in ours.rglob("*") if path.is_file() and not path.is_symlink()):
            relative = path.relative_to(ours)
            if sha256_file(path) != sha256_file(theirs / relative):
                return f"/{relative}: its content differs, byte {_first_byte(path, theirs / relative)} first"
    return None


def _first_byte(left: Path, right: Path) -> int:
    pairs = zip_longest(left.read_bytes(), right.read_bytes())
    return next(number for number, (ours, theirs) in enumerate(pairs) if ours != theirs)


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
