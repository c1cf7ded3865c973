"""Data made into files that are read as they lie: resumable, the same bytes each time, the manifest last."""

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
from sifmark.datasets.source import DatasetSource, OutputFile

SCHEMA = "manifest-1.0"
MANIFEST = "manifest.json"
JOURNAL = ".manifest.json"  # what is finished, until all is
PROGRESS_EVERY = 100  # originals


def pack(order: DatasetSource, folder: Path, strict: bool = False) -> "Packer":
    """Fill a folder with the files that an order describes, and write their manifest.

    Raises UsageError where the folder holds other things, and SifmarkError where something is damaged and `strict`, or
    all is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _exclusive(folder):
        remove_stale_drafts(folder)
        packing = Packer(order, folder, strict)
        with step(f"fill {folder}") as current:
            packing.run(current)
        document = packing.document()
        for name, content in order.beside().items():
            write_json(folder / name, content)
        write_json(folder / MANIFEST, document)
        (folder / JOURNAL).unlink(missing_ok=True)
    return packing


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, and remove its file afterwards. Raises SifmarkError where another run fills the folder."""
    path = folder / ".prepare.lock"
    try:
        with file_lock(path, wait=False), ExitStack() as cleanup:
            cleanup.callback(path.unlink)
            yield
    except LockHeldError:
        raise SifmarkError(f"another run fills {folder}", "wait for its end, or name another folder") from None


class Packer:
    """The work on one target. What an earlier run finished and still matches is kept."""

    def __init__(self, order: DatasetSource, folder: Path, strict: bool) -> None:
        self.order, self.folder, self.strict = order, folder, strict
        self.kept = self.done = self.reused = 0  # files that an earlier run left; images; those of such files
        self.plan = order.plan
        known = _known(folder, self.plan)
        self.known = {file["name"]: file for file in known.get("files", [])}
        self.skipped = set(known.get("skipped", []))
        self.why = ""  # the first that was skipped was
        self.files: list[dict[str, Any]] = []
        if strict and self.skipped:
            raise _damaged(min(self.skipped), "not whole, as an earlier run found")

    def run(self, current: Step) -> None:
        """Have every file, telling how far it is."""
        for chunk in self.order.chunks():
            if self.matches(chunk.name):
                self.files.append(self.known[chunk.name])
                self.kept += 1
                self.done += chunk.originals
                self.reused += chunk.originals
                current.detail(f"{self.done} {self.order.noun} are there already, in {self.kept} files")
            else:
                self.write(chunk, current)
        if not self.files:
            example = f", for example {self.why or printable(min(self.skipped))}" if self.skipped else ""
            raise SifmarkError(f"none of the {self.order.total} {self.order.noun} is whole{example}", "give others")

    def matches(self, name: str) -> bool:
        """Whether an earlier run finished the file, and it is as that run left it."""
        path, known = self.folder / name, self.known.get(name)
        return bool(
            known and path.is_file() and path.stat().st_size == known["bytes"] and sha256_file(path) == known["sha256"]
        )

    def write(self, chunk: OutputFile, current: Step) -> None:
        """One file, or none where nothing of it is whole. The journal knows it before it has its name."""

        def skip(name: str = "", why: str = "") -> None:
            self.done += 1
            if self.done % PROGRESS_EVERY == 0:
                current.detail(self.progress(current))
            if name:
                self.skip(name, why)

        with atomic_path(self.folder / chunk.name) as draft:
            with draft.open("wb") as stream:
                samples = chunk.write(stream, skip)
            if samples:
                described = {"bytes": draft.stat().st_size, "sha256": sha256_file(draft)}
                self.files.append({"name": chunk.name, "samples": samples, **described})
                write_json(self.folder / JOURNAL, self.document())
        if not samples:
            (self.folder / chunk.name).unlink()

    def skip(self, name: str, why: str) -> None:
        """Leave an original out. Raises SifmarkError where none is to be."""
        if self.strict:
            raise _damaged(name, why)
        self.why = self.why or f"{printable(name)} ({why})"
        self.skipped.add(name)

    def progress(self, current: Step) -> str:
        """How far it is, and how long it may take."""
        total = self.order.total
        left = current.seconds / (self.done - self.reused) * (total - self.done)
        return f"{self.done} of {total} {self.order.noun}, {len(self.files)} files, {left:.0f} s left"

    def document(self) -> dict[str, Any]:
        """The manifest of the files so far."""
        document = {
            "schema_version": "1.0",
            "plan": self.plan,
            **self.order.described(),
            "samples": sum(file["samples"] for file in self.files),
            "bytes": sum(file["bytes"] for file in self.files),
            "files": self.files,
            "skipped": sorted(self.skipped),
        }
        check_document(SCHEMA, document, MANIFEST)
        return document


def _known(folder: Path, plan: str) -> dict[str, Any]:
    """What an earlier run of the same plan told of its files. Raises UsageError where the folder holds other things."""
    require_prepared_folder(folder)
    told = _told(folder)
    if told is None:
        return {}
    try:
        document = json.loads(told.read_text())
    except ValueError as error:
        raise UsageError(f"{told}: {error}", "name a new folder, or remove this one") from None
    check_document(SCHEMA, document, str(told))
    if document["plan"] != plan:
        what = "prepared from another source, or with another format, tokenizer, length, seed or --samples-per-file"
        raise UsageError(f"{folder} holds data {what}", "name a new folder, or remove this one")
    return dict(document)


def _told(folder: Path) -> Path | None:
    """The manifest or the journal of an earlier run."""
    return next((path for path in (folder / MANIFEST, folder / JOURNAL) if path.is_file()), None)


def require_prepared_folder(folder: Path) -> None:
    """Raise UsageError where a folder holds what no run has put there, or is none."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder", "name a new folder")
    if folder.is_dir() and not _told(folder) and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise UsageError(f"{folder} is not empty", "name a new folder")


def _damaged(name: str, why: str) -> SifmarkError:
    return SifmarkError(f"{printable(name)}: {why}", "mend or remove it, or leave --strict out")
