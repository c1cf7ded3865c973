"""The first place where two SIF files differ, down to the file inside."""

import json
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sifmark.core.files import sha256_file
from sifmark.engines.apptainer.sif import METADATA, PARTITION, SBOM, SIGNATURE, Descriptor, Sif, read_sif
from sifmark.engines.apptainer.squashfs import ROOT, extract, list_files

_COLUMNS = ("mode", "owner", "size", "date", "time", "name")  # of what unsquashfs lists


def difference(ours: Path, other: Path) -> str | None:
    """What differs first between two images; None where they are the same, signatures aside.

    Raises SifmarkError where one is no SIF.
    """
    one, two = read_sif(ours), read_sif(other)
    for mine, its in zip_longest(_unsigned(one), _unsigned(two)):
        if mine is None or its is None or (mine.kind, mine.name) != (its.kind, its.name):
            return f"one has {_told(mine)} where the other has {_told(its)}"
        if found := _in_object(one, mine, two, its):
            return found
    signed = any(entry.kind == SIGNATURE for sif in (one, two) for entry in sif.descriptors)
    if not signed and sha256_file(ours) != sha256_file(other):
        return "all objects are the same, and the header or the table before them is not"
    return None


def _unsigned(sif: Sif) -> list[Descriptor]:
    return [entry for entry in sif.descriptors if entry.kind != SIGNATURE]


def _told(entry: Descriptor | None) -> str:
    return "nothing" if entry is None else f"an object of type {entry.kind:#x} {entry.name!r}"


def _in_object(one: Sif, mine: Descriptor, two: Sif, its: Descriptor) -> str | None:
    if one.digest(mine) == two.digest(its):
        return None
    if mine.kind == PARTITION:
        return _in_tree(one, mine, two, its)
    if mine.kind in (METADATA, SBOM):
        return _in_document(f"{mine.name or mine.kind}", json.loads(one.read(mine)), json.loads(two.read(its)))
    lines = zip_longest(one.read(mine).decode().splitlines(), two.read(its).decode().splitlines())
    number, (left, right) = next((n, pair) for n, pair in enumerate(lines, start=1) if pair[0] != pair[1])
    return f"{mine.name or 'the definition'}, line {number}: {left!r} and {right!r}"


def _in_document(where: str, left: Any, right: Any) -> str | None:
    """The first field that differs, by its path."""
    if isinstance(left, dict) and isinstance(right, dict):
        fields: Iterator[Any] = iter(sorted(left.keys() | right.keys()))
    elif isinstance(left, list) and isinstance(right, list):
        fields, left, right = iter(range(max(len(left), len(right)))), dict(enumerate(left)), dict(enumerate(right))
    else:
        return None if left == right else f"{where}: {_short(left)} and {_short(right)}"
    for field in fields:
        if found := _in_document(f"{where}: {field}", left.get(field), right.get(field)):
            return found
    return None


def _in_tree(one: Sif, mine: Descriptor, two: Sif, its: Descriptor) -> str:
    rows = [{row[-1]: row for row in list_files(sif.path, entry.offset)} for sif, entry in ((one, mine), (two, its))]
    for name in sorted(rows[0].keys() | rows[1].keys()):
        left, right = rows[0].get(name), rows[1].get(name)
        if left is None or right is None:
            return f"/{name.removeprefix(ROOT)} is in one image only"
        for column, here, there in zip(_COLUMNS, left, right, strict=False):
            if here != there:
                return f"/{name.removeprefix(ROOT)}: its {column} is {here} and {there}"
    with tempfile.TemporaryDirectory(prefix="sifmark-", dir=one.path.parent) as name:
        trees = [
            extract(sif.path, entry.offset, Path(name, side))
            for side, sif, entry in (("one", one, mine), ("two", two, its))
        ]
        for path in sorted(path for path in trees[0].rglob("*") if path.is_file() and not path.is_symlink()):
            inside = path.relative_to(trees[0])
            if sha256_file(path) != sha256_file(trees[1] / inside):
                return f"/{inside}: its content differs, byte {_first_byte(path, trees[1] / inside)} first"
    return "the file systems hold the same files, packed in another way"


def _first_byte(left: Path, right: Path) -> int:
    pairs = zip_longest(left.read_bytes(), right.read_bytes())
    return next(number for number, (here, there) in enumerate(pairs) if here != there)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
