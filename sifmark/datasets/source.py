"""What every source of data provides: the items that it has, and the files that they are packed into."""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple, Protocol


class DamagedError(Exception):
    """An item of a source is damaged; the text says how."""


class ReportItem(Protocol):
    """Called for each item that is done: with its name and a reason if it is left out."""

    def __call__(self, name: str = "", reason: str = "") -> None:
        """Count the item. Raises SifmarkError for one that is left out although none may be."""


class OutputFile(NamedTuple):
    """A file to be written: its name, the number of items for it, and what writes them and returns its samples."""

    name: str
    items: int
    write: Callable[[BinaryIO, ReportItem], int]


class DatasetSource(Protocol):
    """Data as a user has them. The same source and options give the same files."""

    noun: str  # what an item is, for people: images, lines, questions
    total: int  # items

    @property
    def plan(self) -> str:
        """Hash of all that decides the bytes of the files."""

    def manifest_fields(self) -> dict[str, Any]:
        """Return the fields of the manifest that this source decides."""

    def sidecar_files(self) -> dict[str, Any]:
        """Return JSON documents to be written beside the files, by name."""

    def output_files(self) -> Iterator[OutputFile]:
        """Return the files in their order."""
