"""The formats of input data, recognised by the files at a path, and the framework that reads each."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, Mapping, Sequence

from entrypoints.contract.cards import PICTURES, Card
from entrypoints.contract.statuses import UsageError
from entrypoints.contract.target import AnswerGrader
from entrypoints.data import manifest
from entrypoints.data.images import folder, idx, records, shards
from entrypoints.data.sequences import passages, speech, tokens
from entrypoints.data.source import Source
from entrypoints.system.image import binding_hint

# Each module has `find(path)`, the files of its format at a path, and `open_source(path, files, task, manifest)`. A
# path with no such file is read as a folder of class folders.
FORMATS: dict[str, ModuleType] = {
    "shards": shards,
    "records": records,
    "idx": idx,
    "tokens": tokens,
    "passages": passages,
    "speech": speech,
}
FOLDER = "folder"
# Formats that only one framework reads; all frameworks read the others.
READERS = {"records": "tensorflow", **dict.fromkeys(("shards", "tokens", "passages", "speech"), "pytorch")}
# The kinds of a card's `problem.input` that a format holds; the other formats hold pictures.
KINDS = {"tokens": ("text",), "passages": ("passage",), "speech": ("speech",)}


def formats_of(problem: Mapping[str, Any]) -> list[str]:
    """Return the formats that hold what a workload takes."""
    return [name for name in (FOLDER, *FORMATS) if problem["input"]["kind"] in KINDS.get(name, PICTURES)]


def open_for(
    card: Card, path: Path, task: str, framework: str, option: str = "--data", checked: bool = False
) -> tuple[str, Source]:
    """Return format and source as `open_source` does, ready for a card. Raises UsageError also if they do not match."""
    kind, fitting = card.problem["input"]["kind"], formats_of(card.problem)
    if not fitting:
        raise UsageError(
            f"{option} {path}: no files are read of {kind}, which {card.name} takes",
            "leave it out",
            code="data-missing",
        )
    name, source = open_source(path, task, framework, fitting, checked)
    source.suit(card, f"{option} {path}")
    return name, source


def open_source(
    path: Path, task: str, framework: str, fitting: Sequence[str] | None = None, checked: bool = False
) -> tuple[str, Source]:
    """Return the format of the data at `path`, and its source. `checked`: by another process, which has read it before.

    Raises UsageError if there is nothing, if it is unclear what is meant, if the format is not one of `fitting`, and if
    the framework does not read it.
    """
    if not (path.is_dir() or path.is_file()):  # a pipe has no end
        raise UsageError(
            f"--data {path}: no such file or folder",
            f"give {_wanted(fitting)}{binding_hint(path)}",
            code="file-missing",
        )
    described = manifest.read(path, checked) if path.is_dir() else None
    files_by_format = {
        name: files for name, files in ((name, module.find(path)) for name, module in FORMATS.items()) if files
    }
    name = described.format if described else _only(path, list(files_by_format))
    if fitting and name not in fitting:
        what = "nothing that is prepared" if name == FOLDER else name
        raise UsageError(f"--data {path}: it holds {what}", f"give {_wanted(fitting)}", code="data-missing")
    if READERS.get(name, framework) != framework:
        read = ", ".join(name for name in fitting or (FOLDER, *FORMATS) if READERS.get(name, framework) == framework)
        remedy = f"Give one of: {read}" if read else "Leave it out"
        raise UsageError(
            f"--data {path}: it holds {name}, which {READERS[name]} reads and {framework} does not",
            remedy,
            code="data-missing",
        )
    if name == FOLDER:
        return name, folder.Folder(path)
    source: Source = FORMATS[name].open_source(path, files_by_format.get(name, []), task, described)
    if described and described.classes:
        source.names = described.classes
    return name, source


def grader(source: Source) -> AnswerGrader | None:
    """Return a grader of the model's answers; None if loss and accuracy say all."""
    if not isinstance(source, passages.Passages):
        return None
    from entrypoints.data.sequences import answers  # late: it imports NumPy, which the parent does not need

    return answers.SquadGrader(source)


def _wanted(fitting: Sequence[str] | None) -> str:
    """Return what the user can give instead, for messages."""
    if not fitting or FOLDER in fitting:
        return "a folder with one folder of images per class"
    return f"a folder of {' or '.join(fitting)} (sifmark data.prepare --format {fitting[0]})"


def _only(path: Path, names: list[str]) -> str:
    if len(names) > 1:
        raise UsageError(
            f"--data {path}: it holds {' and '.join(names)}", "give a folder with one of them", code="data-missing"
        )
    if not names and not path.is_dir():
        raise UsageError(
            f"--data {path}: a file of no known format",
            "give *.tar, *.tfrecord, *images-idx3-ubyte, *.tokens, *.passages, *.speech",
            code="data-missing",
        )
    return names[0] if names else FOLDER
