"""A chart of a report: a Vega-Lite specification of layers, its caption, and the same numbers as a table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Spec = Mapping[str, Any]
Layer = dict[str, Any]
Row = dict[str, Any]
RESERVATION = "Not for publication:"  # how the last sentence of a caption begins, if it is about such results


@dataclass(frozen=True)
class ChartTable:
    """The numbers of a chart as text, for those who cannot see it, and for papers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Chart:
    """A chart, or a table that a study declares. Colours, fonts and sizes are those of the theme.

    Rows of its data may have the keys `href`, where a click on the mark leads, and `description`, what the mark shows
    in words: it becomes the mark's tooltip, and what a screen reader says.
    """

    name: str  # of its files: lower-case letters, digits and hyphens; unique in a report
    title: str
    caption: str  # what is shown, in which unit, over how many repeats, and what the kinds of marks mean
    spec: Spec  # empty of a table
    table: ChartTable

    @property
    def is_table(self) -> bool:
        """Whether it has no picture: pages and files show its table."""
        return not self.spec

    @property
    def explanation(self) -> str:
        """The caption without the title and without what the picture says, for a page that has both above it."""
        return self.caption.removeprefix(f"{self.title}. ").removesuffix(self.reservation).rstrip()

    @property
    def reservation(self) -> str:
        """What keeps its results from publication, which the picture says too; empty if nothing does."""
        _, begin, rest = self.caption.rpartition(RESERVATION)
        return begin + rest if begin else ""


# Rows have colours, words and links of their own.
COLOUR: dict[str, Any] = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
WORDS: dict[str, Any] = {
    "href": {"field": "href", "type": "nominal"},
    "description": {"field": "description", "type": "nominal"},
}


def layer(rows: Iterable[Row], mark: dict[str, Any], **encoding: Any) -> Layer:
    """Return rows drawn as marks."""
    return {"data": {"values": list(rows)}, "mark": mark, "encoding": encoding}
