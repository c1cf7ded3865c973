"""What a chart of a report is: a Vega-Lite specification with its words, and the same numbers as a table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Spec = Mapping[str, Any]
RESERVATION = "Not for publication:"  # how the last sentence of a caption begins, if it is about such results


@dataclass(frozen=True)
class ChartTable:
    """The numbers of a chart as text, for those who cannot see it, and for papers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Chart:
    """A chart. Colours, fonts and sizes are those of the theme, so a specification names none.

    Rows of its data may have the keys `href`, where a click on the mark leads, and `description`, what the mark shows
    in words: it becomes the mark's tooltip, and what a screen reader says.
    """

    name: str  # of its files: lower-case letters, digits and hyphens; unique in a report
    title: str
    caption: str  # what is shown, in which unit, over how many repeats, and what the kinds of marks mean
    spec: Spec
    table: ChartTable

    @property
    def explanation(self) -> str:
        """The caption without the title and without what the picture says, for a page that has both above it."""
        return self.caption.removeprefix(f"{self.title}. ").removesuffix(self.reservation).rstrip()

    @property
    def reservation(self) -> str:
        """What keeps its results from publication, which the picture says too; empty if nothing does."""
        _, begin, rest = self.caption.rpartition(RESERVATION)
        return begin + rest if begin else ""
