"""A source of samples: counted before a run, and read epoch by epoch while it lasts. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Iterator, NamedTuple, Sequence

from entrypoints.contract.cards import Card
from entrypoints.contract.statuses import UsageError


class Entry(NamedTuple):
    """One sample as it lies in its source."""

    name: str  # below the data path, for people
    number: int  # from 0, the same in every epoch
    label: int | None  # None where what should be a label is none
    read: Callable[[], bytes]  # gives an image file


class DataFile(NamedTuple):
    """One of the files that hold samples."""

    name: str
    samples: int


class Source:
    """Samples at a path. An epoch is an order of `units`, which are samples, or files where those are `sequential`."""

    sequential = False  # read from the front, each file by one process at a time

    def __init__(self, path: Path, samples: int, classes: int | None, lost: Sequence[str] = ()) -> None:
        self.path, self.samples, self.classes = path, samples, classes
        self.lost = tuple(lost)  # what was found damaged while samples were counted
        self.part: str | None = None  # which of several sets that lie there this is
        self.names: tuple[str, ...] | None = None  # of the classes by their numbers; None where they are not known

    @property
    def units(self) -> int:
        """How many things an epoch puts in order."""
        return self.samples

    def suit(self, card: Card, where: str) -> None:
        """Make ready for a card. Raises UsageError where its samples are not what the card takes."""
        most = card.problem["model"].get("classes")
        if most is not None and (self.classes or 0) > most:
            raise UsageError(f"{where}: {self.classes} classes, {card.name} knows {most}. Give fewer")

    def like(self, other: Source, where: str) -> None:
        """Raise UsageError where what is learnt of another source says nothing of this one."""

    def numbered_as(self, other: Source, where: str) -> None:
        """Raise UsageError where a number means another class than in another source."""
        if self.names and other.names and self.names != other.names[: len(self.names)]:
            raise UsageError(
                f"{where}: its classes {_few(self.names)} are not numbered as those of {other.path}, "
                f"{_few(other.names)}. Have the same folders in both; prepare-data numbers those that hold images"
            )

    def share(self) -> None:
        """Have at hand what processes that are forked from this one can share."""

    def entries(self, order: Sequence[int], start: int) -> Iterator[Entry]:
        """One whole turn through an epoch of this order of units: from its sample `start` to the end, and around."""
        turn = range(start, start + self.samples)
        return (self.entry(int(order[position % self.samples])) for position in turn)

    def entry(self, number: int) -> Entry:
        """The sample of this number, where samples are the units."""
        raise NotImplementedError


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def listed(folder: Path, directories: bool = False) -> list[str]:
    """Names of the files, or of the folders, in a folder: sorted, links followed, hidden ones passed over.

    Raises UsageError where it cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name
                for entry in entries
                if not entry.name.startswith(".")
                # Through links: subsets of large data sets are often made of them.
                and (entry.is_dir if directories else entry.is_file)()
            )
    except OSError as error:
        raise UsageError(f"--data {folder}: {error.strerror}. Make it readable for this user") from None


def with_suffix(path: Path, suffix: str) -> list[Path]:
    """The files with this suffix at a path: the path itself, or those right in the folder."""
    files = [path / name for name in listed(path)] if path.is_dir() else [path]
    return [file for file in files if file.name.endswith(suffix)]
