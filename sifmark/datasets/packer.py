"""Packing a source into files: resumable, the same bytes each time, the manifest last."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sifmark.core.console import Step, printable, step
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import atomic_path, remove_stale_drafts, sha256_file, write_json
from sifmark.core.locks import LockHeldError, file_lock
from sifmark.core.schemas import check_document
from sifmark.datasets.source import DatasetSource, OutputFile, read_document

SCHEMA = "manifest-1.0"
MANIFEST = "manifest.json"
JOURNAL = ".manifest.json"  # the manifest of the finished files, until all are finished
PROGRESS_EVERY = 100  # items


def pack(source: DatasetSource, folder: Path, strict: bool = False) -> "Packer":
    """Write the files of a source into a folder, and then their manifest.

    Raises UsageError if the folder holds other files, and SifmarkError if an item is damaged and `strict` is set, or
    if all are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _exclusive(folder):
        remove_stale_drafts(folder)
        packer = Packer(source, folder, strict)
        with step(f"fill {folder}") as current:
            packer.run(current)
        document = packer.document()
        for name, content in source.sidecar_files().items():
            write_json(folder / name, content)
        write_json(folder / MANIFEST, document)
        (folder / JOURNAL).unlink(missing_ok=True)
    return packer


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, and remove its file afterwards. Raises SifmarkError if another run fills the folder."""
    path = folder / ".prepare.lock"
    try:
        with file_lock(path, wait=False), ExitStack() as cleanup:
            cleanup.callback(path.unlink)
            yield
    except LockHeldError:
        remedy = "wait for its end, or name another folder"
        raise SifmarkError(f"another run fills {folder}", remedy, code="folder-in-use") from None


class Packer:
    """The work on one folder. Files of an earlier run that still match are kept."""

    def __init__(self, source: DatasetSource, folder: Path, strict: bool) -> None:
        self.source, self.folder, self.strict = source, folder, strict
        self.kept = 0  # files of an earlier run
        self.done = self.reused = 0  # items, and those of them that are in kept files
        self.plan = source.plan
        earlier = _earlier_manifest(folder, self.plan)
        self.earlier_files = {file["name"]: file for file in earlier.get("files", [])}
        self.skipped = set(earlier.get("skipped", []))
        self.why = ""  # the first item of this run was skipped
        self.files: list[dict[str, Any]] = []
        if strict and self.skipped:
            raise _damaged(min(self.skipped), "not whole, as an earlier run found")

    def run(self, current: Step) -> None:
        """Write or keep every file, and show progress. Raises SifmarkError if all items are damaged."""
        for file in self.source.output_files():
            if self.is_kept(file.name):
                self.keep(file, current)
            else:
                self.write(file, current)
        if not self.files:
            example = f", for example {self.why or printable(min(self.skipped))}" if self.skipped else ""
            cause = f"none of the {self.source.total} {self.source.noun} is whole{example}"
            raise SifmarkError(cause, "give others", code="data-damaged")

    def is_kept(self, name: str) -> bool:
        """Return whether an earlier run finished a file, and its bytes are still the same."""
        path, entry = self.folder / name, self.earlier_files.get(name)
        return bool(
            entry and path.is_file() and path.stat().st_size == entry["bytes"] and sha256_file(path) == entry["sha256"]
        )

    def keep(self, file: OutputFile, current: Step) -> None:
        """Count a file of an earlier run."""
        self.files.append(self.earlier_files[file.name])
        self.kept += 1
        self.done += file.items
        self.reused += file.items
        current.detail(f"{self.done} {self.source.noun} are there already, in {self.kept} files")

    def write(self, file: OutputFile, current: Step) -> None:
        """Write one file, or none if all its items are damaged. It is in the journal before it has its name."""

        def report(name: str = "", reason: str = "") -> None:
            self.done += 1
            if self.done % PROGRESS_EVERY == 0:
                current.detail(self.progress(current))
            if name:
                self.skip(name, reason)

        with atomic_path(self.folder / file.name) as draft:
            with draft.open("wb") as stream:
                samples = file.write(stream, report)
            if samples:
                content = {"bytes": draft.stat().st_size, "sha256": sha256_file(draft)}
                self.files.append({"name": file.name, "samples": samples, **content})
                write_json(self.folder / JOURNAL, self.document())
        if not samples:
            (self.folder / file.name).unlink()

    def skip(self, name: str, reason: str) -> None:
        """Leave an item out. Raises SifmarkError if none may be left out."""
        if self.strict:
            raise _damaged(name, reason)
        self.why = self.why or f"{printable(name)} ({reason})"
        self.skipped.add(name)

    def progress(self, current: Step) -> str:
        """Return how much is done, and how long the rest may take."""
        total = self.source.total
        left = current.seconds / (self.done - self.reused) * (total - self.done)
        return f"{self.done} of {total} {self.source.noun}, {len(self.files)} files, {left:.0f} s left"

    def document(self) -> dict[str, Any]:
        """Return the manifest of the files so far."""
        document = {
            "schema_version": "1.0",
            "plan": self.plan,
            **self.source.manifest_fields(),
            "samples": sum(file["samples"] for file in self.files),
            "bytes": sum(file["bytes"] for file in self.files),
            "files": self.files,
            "skipped": sorted(self.skipped),
        }
        check_document(SCHEMA, document, MANIFEST)
        return document


def require_prepared_folder(folder: Path) -> None:
    """Raise UsageError unless a path is free, an empty folder, or one that an earlier run began to fill."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder", "name a new folder", code="folder-not-empty")
    foreign = folder.is_dir() and not _manifest_file(folder)
    if foreign and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise UsageError(f"{folder} is not empty", "name a new folder", code="folder-not-empty")


def _earlier_manifest(folder: Path, plan: str) -> dict[str, Any]:
    """Return the manifest or the journal of an earlier run with the same plan, or an empty one.

    Raises UsageError if the folder holds other files, or those of another plan.
    """
    require_prepared_folder(folder)
    path = _manifest_file(folder)
    if path is None:
        return {}
    try:
        document = json.loads(read_document(path))
    except (ValueError, RecursionError) as error:
        remedy = "name a new folder, or remove this one"
        raise UsageError(f"{path}: {error}", remedy, code="document-invalid") from None
    check_document(SCHEMA, document, str(path))
    if document["plan"] != plan:
        what = "prepared from another source, or with another format, tokenizer, length, seed or --samples-per-file"
        remedy = "name a new folder, or remove this one"
        raise UsageError(f"{folder} holds data {what}", remedy, code="folder-not-empty")
    return dict(document)


def _manifest_file(folder: Path) -> Path | None:
    """Return the manifest or the journal of an earlier run, or None."""
    return next((path for path in (folder / MANIFEST, folder / JOURNAL) if path.is_file()), None)


def _damaged(name: str, reason: str) -> SifmarkError:
    return SifmarkError(
        f"{printable(name)}: {reason}", "repair or remove it, or leave --strict out", code="data-damaged"
    )
