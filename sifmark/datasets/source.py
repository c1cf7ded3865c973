"""An order to prepare data: what decides every byte of the files, and what writes each of them."""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple, Protocol


class DamagedError(Exception):
    """An original is not whole; the text says why."""


class SkipSample(Protocol):
    """Called for each original that is done: with its name and what is wrong with it where it is left out."""

    def __call__(self, name: str = "", why: str = "") -> None:
        """Raises SifmarkError where nothing is to be left out."""


class OutputFile(NamedTuple):
    """A file to be: its name, how many originals go into it, and what writes them and counts its samples."""

    name: str
    originals: int
    write: Callable[[BinaryIO, SkipSample], int]


class DatasetSource(Protocol):
    """What is to be made of a source. The same order gives the same files."""

    noun: str  # what an original is, for people
    total: int  # originals

    @property
    def plan(self) -> str:
        """Hash of what decides every byte."""

    def described(self) -> dict[str, Any]:
        """Its part of the manifest."""

    def beside(self) -> dict[str, Any]:
        """JSON documents that belong beside the files, by name."""

    def chunks(self) -> Iterator[OutputFile]:
        """The files in order."""
