"""The manifest of a prepared folder: its files and their numbers of samples (schemas/manifest-1.0.json)."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from entrypoints.contract.statuses import UsageError
from entrypoints.data.source import DataFile, read_whole

NAME = "manifest.json"
VERSION = "1.0"
# Bytes that a sample takes at least, by format: two members of a tar file, or a record's length and checksums.
LEAST = {"shards": 1024, "records": 16}
MOST_ERRORS = 100  # of a manifest, from which the one to name is chosen
SCHEMA = Path(__file__).resolve().parents[2] / "schemas" / f"manifest-{VERSION}.json"
REMEDY = f"prepare the data again (sifmark data.prepare), or remove {NAME}: then the files are counted"


class Manifest(NamedTuple):
    """A format, its files, and the names of the classes by index; text has none."""

    format: str
    files: tuple[DataFile, ...]
    classes: tuple[str, ...]


def read(folder: Path, checked: bool = False) -> Manifest | None:
    """Return the manifest of a folder; None if it has none, or one of another program.

    One that was `checked` is not compared with its schema: in the worker our jsonschema may not fit what the base has.

    Raises UsageError if its version or form is unknown here, or if it does not match the files beside it.
    """
    path = folder / NAME
    if not path.is_file():
        return None
    document = _document(path, checked)
    if document is None:
        return None
    for file in document["files"]:
        _require(folder / file["name"], file["bytes"])
        if file["samples"] * LEAST.get(document["format"], 1) > file["bytes"]:
            raise UsageError(
                f"--data {folder / file['name']}: {NAME} says {file['samples']} samples in {file['bytes']} bytes",
                REMEDY,
                code="data-damaged",
            )
    # For the schema 3.0 is an integer too.
    files = tuple(DataFile(file["name"], int(file["samples"])) for file in document["files"])
    return Manifest(document["format"], files, tuple(document["classes"] or ()))


def _document(path: Path, checked: bool) -> dict[str, Any] | None:
    try:
        document = json.loads(read_whole(path))
    except OSError as error:
        raise UsageError(
            f"--data {path}: {error.strerror}", "make it readable for this user", code="file-unreadable"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--data {path}: it is no JSON: {error}", REMEDY, code="data-missing") from None
    if not isinstance(document, dict) or "schema_version" not in document:
        return None
    version = document["schema_version"]
    if isinstance(version, str) and version != VERSION:
        raise UsageError(
            f"--data {path}: schema_version {version[:20]!r}, this image reads {VERSION}",
            "take a newer image, or remove the manifest: then the files are counted again",
            code="data-damaged",
        )
    if not checked:
        _require_form(path, document)
    return document


def _require_form(path: Path, document: Any) -> None:
    """Raise UsageError if the document is not as its schema says."""
    import jsonschema  # late: data without a manifest does not need it

    checker = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")))
    wrong = jsonschema.exceptions.best_match(islice(checker.iter_errors(document), MOST_ERRORS))
    if wrong is not None:
        raise UsageError(f"--data {path}: {wrong.json_path}: {wrong.message[:200]}", REMEDY, code="data-missing")


def _require(file: Path, size: int) -> None:
    """Raise UsageError if the file is missing or not of this size."""
    try:
        actual_size = file.stat().st_size
    except OSError as error:
        raise UsageError(
            f"--data {file}: {error.strerror}, and {NAME} names it", REMEDY, code="file-unreadable"
        ) from None
    if actual_size != size:  # which a pipe or a device has none of
        raise UsageError(f"--data {file}: {actual_size} bytes, and {NAME} says {size}", REMEDY, code="data-missing")
