"""What charts say in words: names of files and systems, descriptions of marks, and captions."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from sifmark.report.charts.chart import RESERVATION
from sifmark.report.describe import failure_text
from sifmark.report.results import (
    Failure,
    OverPublished,
    Point,
    PublishedMark,
    Section,
)
from sifmark.report.texts import short
from sifmark.results.comparison.intervals import CONFIDENCE

LONGEST_PHRASE = 60


def chart_name(section: Section, kind: str) -> str:
    """Return the name of a chart of a section, as its files have it: no other section of the report has the same."""
    words = [*_workload(section), kind]
    if sum(_workload(other) == _workload(section) for other in section.results.sections) > 1:
        words.append(section.key.identity.removeprefix("sha256:")[:8])
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower())[:120].strip("-")


def _workload(section: Section) -> list[str]:
    return [section.members[0].document["workload"]["name"], section.key.task, section.key.source]


def short_phrase(text: str) -> str:
    """Return a phrase of a document, such as the title of a column, as a label."""
    return short(text, LONGEST_PHRASE)


def caption(title: str, points: Sequence[Point], failures: Sequence[Failure] = (), *more: str) -> str:
    """Return a caption: what is shown, what the marks mean, and what keeps the results from publication."""
    return " ".join(
        [f"{title}.", *_caption_means(points), *_caption_failures(failures), *more, *caption_reservations(points)]
    )


def caption_sources(marks: Sequence[PublishedMark]) -> list[str]:
    """Return the sentence of a caption that names the sources of hollow diamonds."""
    names = dict.fromkeys(f"{mark.source} ({short(mark.device)})" for mark in marks)
    return [f"Hollow diamonds are published figures: {'; '.join(names)}."] if names else []


def caption_missing(failures: Sequence[Failure]) -> Iterator[str]:
    """Yield the sentence of a caption that counts the failures that have no place in a chart."""
    counts = Counter(map(failure_text, failures))
    if counts:
        states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        yield f"Runs that are no measurement have no place here: {states}."


def caption_more_lines(every: int, shown: int) -> Iterator[str]:
    """Yield the sentence of a caption that says what only the table has."""
    if every > shown:
        yield f"The table has {every - shown} lines more, which are not drawn."


def _caption_means(points: Sequence[Point]) -> Iterator[str]:
    counts = {point.mean.count for point in points}
    if counts == {1}:
        yield "Each mark is a single run."
    elif counts:
        span = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
        means = "geometric means" if all(point.mean.geometric for point in points) else "means"
        yield f"Marks are {means} of {span} repeats in fresh processes, small dots the repeats."
    if any(point.mean.low is not None for point in points):
        yield f"Thin rules are {CONFIDENCE:.0%} confidence intervals."


def _caption_failures(failures: Sequence[Failure]) -> Iterator[str]:
    counts = Counter(map(failure_text, failures))
    if counts:
        states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        yield f"Hollow triangles are runs that are no measurement: {states}."


def caption_reservations(points: Sequence[Point | OverPublished]) -> Iterator[str]:
    """Yield the sentence of a caption that says what keeps results from publication."""
    counts = Counter(mark for point in points for mark in point.marks)
    if counts:
        shares = {
            mark: "all" if count == len(points) else f"{count} of {len(points)}" for mark, count in counts.items()
        }
        yield f"{RESERVATION} {', '.join(f'{mark.name} ({share})' for mark, share in shares.items())}."
