"""What every source of data provides: the items that it has, and the files that they are packed into."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from sifmark.core.errors import SifmarkError
from sifmark.core.files import human_size, read_bounded

# What is read at once has a largest size, since a source may be anything: a few bytes can stand for a file without end.
LARGEST = 64 * 1024**2  # bytes; parsed JSON takes up to 25 times as much memory


class DamagedError(Exception):
    """An item of a source is damaged; the text says how."""


def read_item(path: Path) -> bytes:
    """Return the content of an image or a recording. Raises DamagedError if it is larger than any is."""
    try:
        return read_bounded(path, LARGEST)
    except ValueError:
        raise DamagedError(f"larger than {human_size(LARGEST)}") from None


def read_document(path: Path) -> bytes:
    """Return the content of a file that is parsed as a whole. Raises SifmarkError if it is larger than any is."""
    try:
        return read_bounded(path, LARGEST)
    except ValueError:
        cause = f"{path}: larger than {human_size(LARGEST)}, and it is read as a whole"
        raise SifmarkError(cause, "divide it into several", code="file-unreadable") from None


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
