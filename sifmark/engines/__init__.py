"""Container engines: sibling modules behind one interface. What a verb needs of an engine, and no more."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sifmark.plan import Plan
from sifmark.recipe import Access


@dataclass(frozen=True)
class Inspection:
    """What an engine says of a finished image."""

    labels: dict[str, str]
    apps: tuple[str, ...]
    runscript: str
    definition: str


class Engine(Protocol):
    """Builds, runs and inspects images."""

    name: str

    def version(self) -> str | None:
        """The engine's version, or None where it is not installed."""

    def build(self, plan: Plan, target: Path, log: Path) -> None:
        """Make the image of a plan as the file `target`. Raises SifmarkError; the target may then be half written."""

    def command(self, image: Path, verb: str, arguments: Sequence[str] = (), options: Sequence[str] = ()) -> list[str]:
        """The argv that runs, tests or executes in an image on this host."""

    def reach(self, access: Access) -> list[str]:
        """The options of `command` that let a container reach devices; none where this host has no such device."""

    def inspect(self, image: Path) -> Inspection:
        """What the image says of itself. Raises SifmarkError when the engine cannot read it."""


def engine() -> Engine:
    """The engine in use."""
    from sifmark.engines.apptainer import Apptainer  # late: engines know this module

    return Apptainer()
