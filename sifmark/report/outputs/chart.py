"""A chart or table that a study declares, or that a document prints: plots, a caption, and the numbers as a table."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sifmark.report.describe import failure_text
from sifmark.report.forms import Figure
from sifmark.report.results import Failure, Point, PublishedMark
from sifmark.report.svg import Plot
from sifmark.report.texts import short
from sifmark.results.comparison.intervals import CONFIDENCE

LONGEST_PHRASE = 44  # characters of a phrase of a document, such as the title of a column, as a label
_RESERVATION = "Not for publication:"


@dataclass(frozen=True)
class ChartTable:
    """The numbers of a chart as text, for those who cannot see it, and for papers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Chart:
    """A chart with its numbers, or a table alone."""

    name: str  # of its files: lower-case letters, digits and hyphens; unique in a report
    title: str
    caption: str  # what is shown, over how many repeats, and what the kinds of marks mean
    plots: tuple[Plot, ...]  # one for each unit or quantity; none of a table
    table: ChartTable

    @property
    def is_table(self) -> bool:
        """Whether it has no picture: pages and files show its table."""
        return not self.plots

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Its plots with names of files: that of the chart, and of others with a number behind it."""
        return tuple(
            Figure(self.name if number == 1 else f"{self.name}-{number}", self.title, "", plot)
            for number, plot in enumerate(self.plots, start=1)
        )

    @property
    def explanation(self) -> str:
        """The caption without the title, for a page that has it above."""
        return self.caption.removeprefix(f"{self.title}. ")


def short_phrase(text: str) -> str:
    """Return a phrase of a document as a label."""
    return short(text, LONGEST_PHRASE)


def file_name(*words: str) -> str:
    """Return the name of a chart, as its files have it."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")


def titled(name: str, unit: str) -> str:
    """Return a quantity with its unit, as axes and columns are titled."""
    return name if unit in ("", "1") else f"{name} [{unit}]"


def caption(title: str, points: Sequence[Point], failures: Sequence[Failure] = (), *more: str) -> str:
    """Return a caption: what is shown, what the marks mean, and what keeps the results from publication."""
    failed = [f"Crosses are runs that are no measurement: {_states(failures)}."] if failures else []
    return " ".join([f"{title}.", *_caption_means(points), *failed, *more, *caption_reservations(points)])


def caption_sources(marks: Sequence[PublishedMark]) -> list[str]:
    """Return the sentence of a caption that names the sources of published figures."""
    names = dict.fromkeys(f"{mark.source} ({short(mark.device)})" for mark in marks)
    return [f"Hollow diamonds are published figures: {'; '.join(names)}."] if names else []


def caption_missing(failures: Sequence[Failure]) -> list[str]:
    """Return the sentence of a caption that counts the failures that have no place in a chart."""
    return [f"Runs that are no measurement have no place here: {_states(failures)}."] if failures else []


def caption_reservations(points: Sequence[Point]) -> list[str]:
    """Return the sentence of a caption that says what keeps results from publication."""
    counts = Counter(mark for point in points for mark in point.marks)
    shares = (
        f"{mark.name} ({'all' if count == len(points) else f'{count} of {len(points)}'})"
        for mark, count in counts.items()
    )
    return [f"{_RESERVATION} {', '.join(shares)}."] if counts else []


def _caption_means(points: Sequence[Point]) -> Iterator[str]:
    counts = {point.mean.count for point in points}
    if counts == {1}:
        yield "Each mark is a single run."
    elif counts:
        span = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
        means = "geometric means" if all(point.mean.geometric for point in points) else "means"
        yield f"Marks are {means} of {span} repeats in fresh processes."
    if any(point.mean.low is not None for point in points):
        yield f"Intervals are {CONFIDENCE:.0%} confidence intervals."


def _states(failures: Sequence[Failure]) -> str:
    counts = Counter(map(failure_text, failures))
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
