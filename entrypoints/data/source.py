"""A source of samples: counted before a run, and read epoch by epoch during it. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Iterator, NamedTuple, Sequence

from entrypoints.contract.cards import Card
from entrypoints.contract.statuses import UsageError

LARGEST = 1 << 26  # bytes of an image or a document: a few bytes can stand for a file without end


class Entry(NamedTuple):
    """One sample of a source."""

    name: str  # below the data path, for people
    number: int  # from 0, the same in every epoch
    label: int | None  # None if what should be a label is not one
    read: Callable[[], bytes]  # returns an image file


class DataFile(NamedTuple):
    """One of the files that hold samples."""

    name: str
    samples: int


class Source:
    """Samples at a path. An epoch is an order of `units`: samples, or files if the source is `sequential`."""

    sequential = False  # each file is read from its start, by one process at a time

    def __init__(self, path: Path, samples: int, classes: int | None, lost: Sequence[str] = ()) -> None:
        self.path, self.samples, self.classes = path, samples, classes
        self.lost = tuple(lost)  # what turned out damaged while samples were counted
        self.part: str | None = None  # which of several sets at the path this is
        self.names: tuple[str, ...] | None = None  # of the classes by their numbers; None if unknown

    @property
    def units(self) -> int:
        """Number of units that an epoch orders."""
        return self.samples

    def suit(self, card: Card, where: str) -> None:
        """Make ready for a card. Raises UsageError if its samples are not what the card takes."""
        most = card.problem["model"].get("classes")
        if most is not None and (self.classes or 0) > most:
            raise UsageError(
                f"{where}: {self.classes} classes, {card.name} knows {most}", "give fewer", code="data-missing"
            )

    def like(self, other: Source, where: str) -> None:
        """Raise UsageError if what is learnt from another source does not apply to this one."""

    def numbered_as(self, other: Source, where: str) -> None:
        """Raise UsageError if a number means another class than in another source."""
        if self.names and other.names and self.names != other.names[: len(self.names)]:
            raise UsageError(
                f"{where}: its classes {_few(self.names)} are not numbered as those of {other.path}, "
                f"{_few(other.names)}",
                "have the same folders in both; data.prepare numbers those that hold images",
                code="data-missing",
            )

    def share(self) -> None:
        """Load what processes forked from this one can share."""

    def entries(self, order: Sequence[int], start: int) -> Iterator[Entry]:
        """Yield one turn through an epoch in this order of units: from its sample `start` to the end, and around."""
        turn = range(start, start + self.samples)
        return (self.entry(int(order[position % self.samples])) for position in turn)

    def entry(self, number: int) -> Entry:
        """Return the sample of this number, if samples are the units."""
        raise NotImplementedError


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def read_whole(file: Path) -> bytes:
    """Return the content of a file. Raises ValueError if it is larger than an image or a document is."""
    size = file.stat().st_size
    if size > LARGEST:
        raise ValueError(f"it has {size} bytes, and at most {LARGEST} are read")
    return file.read_bytes()


def listed(folder: Path, directories: bool = False) -> list[str]:
    """Return the names of the files, or of the folders, in a folder: sorted, links followed, hidden ones skipped.

    Raises UsageError if it cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name
                for entry in entries
                if not entry.name.startswith(".")
                # Follow links: subsets of large datasets are often made of them.
                and (entry.is_dir if directories else entry.is_file)()
            )
    except OSError as error:
        raise UsageError(
            f"--data {folder}: {error.strerror}", "make it readable for this user", code="file-unreadable"
        ) from None


def with_suffix(path: Path, suffix: str) -> list[Path]:
    """Return the files with this suffix at a path: the path itself, or those directly in the folder."""
    files = [path / name for name in listed(path)] if path.is_dir() else [path]
    return [file for file in files if file.name.endswith(suffix)]
