"""The formats that data may lie in, found by what lies at a path, and who reads them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from entrypoints.data import folder, idx, manifest, records, shards
from entrypoints.data.source import Source
from entrypoints.statuses import UsageError

# Each has `find(path)`, the files of this format there, and `open_source(path, files, task, manifest)`. A folder of
# class folders is what is left where there are none.
FORMATS: dict[str, ModuleType] = {"shards": shards, "records": records, "idx": idx}
FOLDER = "folder"
# The one framework that reads a format; the others are read by all.
READERS = {"shards": "pytorch", "records": "tensorflow"}


def open_source(path: Path, task: str, framework: str) -> tuple[str, Source]:
    """The format of what lies at `path`, and the source.

    Raises UsageError where there is nothing, where it is not clear what is meant, and where the framework does not
    read that format.
    """
    if not path.exists():
        raise UsageError(f"--data {path}: no such file or folder. Give a folder with one folder of images per class")
    described = manifest.read(path) if path.is_dir() else None
    found = {name: files for name, files in ((name, module.find(path)) for name, module in FORMATS.items()) if files}
    name = described.format if described else _only(path, list(found))
    if READERS.get(name, framework) != framework:
        read = ", ".join(name for name in (FOLDER, *FORMATS) if READERS.get(name, framework) == framework)
        raise UsageError(
            f"--data {path}: it holds {name}, which {READERS[name]} reads and {framework} does not. Give one of: {read}"
        )
    if name == FOLDER:
        return name, folder.Folder(path)
    return name, FORMATS[name].open_source(path, found.get(name, []), task, described)


def _only(path: Path, found: list[str]) -> str:
    if len(found) > 1:
        raise UsageError(f"--data {path}: it holds {' and '.join(found)}. Give a folder with one of them")
    if not found and not path.is_dir():
        raise UsageError(f"--data {path}: a file of no known format. Give *.tar, *.tfrecord, *images-idx3-ubyte")
    return found[0] if found else FOLDER
