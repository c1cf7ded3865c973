"""What charts say in words: names of files and systems, descriptions of marks, and captions."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from sifmark.report.charts.chart import RESERVATION
from sifmark.report.results import (
    Failure,
    OverPublished,
    Point,
    PublishedMark,
    ReportResult,
    Section,
    everywhere_marks,
)
from sifmark.results.comparison.compatibility import NUMERICS, SCOPE
from sifmark.results.comparison.intervals import CONFIDENCE, Mean
from sifmark.results.numbers import Scale, format_quantity, scale_of

LONGEST_NAME = 36  # characters: fonts of readers may be wider than ours
LONGEST_PHRASE = 60


def chart_name(section: Section, kind: str) -> str:
    """Return the name of a chart of a section, as its files have it: no other section of the report has the same."""
    words = [*_workload(section), kind]
    if sum(_workload(other) == _workload(section) for other in section.results.sections) > 1:
        words.append(section.key.identity.removeprefix("sha256:")[:8])
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower())[:120].strip("-")


def _workload(section: Section) -> list[str]:
    return [section.members[0].document["workload"]["name"], section.key.task, section.key.source]


def short(name: str, longest: int = LONGEST_NAME) -> str:
    """Return an untrusted name as a label: one that is too long loses its middle."""
    half = longest // 2
    name = name.strip() or "unnamed"
    return name if len(name) <= longest else f"{name[:half]}…{name[-half + 1 :]}"


def short_phrase(text: str) -> str:
    """Return a phrase of a document, such as the title of a column, as a label."""
    return short(text, LONGEST_PHRASE)


def distinct(labels: Iterable[str]) -> list[str]:
    """Return labels of which each is different: marks of equal labels would be drawn over each other."""
    counts: Counter[str] = Counter()
    unique: list[str] = []
    for label in labels:
        counts[label] += 1
        unique.append(label if counts[label] == 1 else f"{label} ({counts[label]})")
    return unique


def mean_text(mean: Mean, scale: Scale | None = None) -> str:
    """Return a mean with its interval, in the unit of a scale; a dash without a value."""
    if mean.value is None:
        return "-"
    return (scale or Scale(1.0, "")).text(mean.value, mean.low, mean.high)


def quantity_text(mean: Mean, unit: str) -> str:
    """Return a mean with its unit and interval: `412.0 images/s ± 1.7 %`."""
    return "-" if mean.value is None else format_quantity(mean.value, unit, mean.low, mean.high)


def scale_of_points(points: Iterable[Point]) -> Scale:
    """Return the scale in which all numbers of a metric are shown."""
    measured = list(points)
    return scale_of(measured[0].unit, (point.mean.value for point in measured if point.mean.value is not None))


def repeats_text(count: int) -> str:
    """Return how many repeats there were."""
    return f"{count} repeat{'' if count == 1 else 's'}"


def describe(point: Point, label: str, place: str) -> str:
    """Return what a mark shows: `alpha, batch size 64: 412 images/s ± 1.7 %, 3 repeats; test base`."""
    what = f"{label}, {place}: {quantity_text(point.mean, point.unit)}, {repeats_text(point.mean.count)}"
    return "; ".join([what, *remarks(point.results)])


def describe_failure(failure: Failure, place: str) -> str:
    """Return the state of a run in words."""
    return f"{short(failure.system)}, {place}: {failure_text(failure)}"


def describe_published(mark: PublishedMark, place: str) -> str:
    """Return a published figure with its source, and with what differs."""
    what = f"published, {mark.source}: {mark.device}, {place}: {published_text(mark)}"
    return "; ".join([what, *mark.remarks])


def failure_text(failure: Failure) -> str:
    """Return why a result is no measurement: `out of memory`, `wrong results`, `smoke run`."""
    if failure.state != "completed":
        return failure.state.replace("_", " ")
    return "correctness check failed" if NUMERICS in failure.fields else "smoke run"


def published_text(mark: PublishedMark) -> str:
    """Return a published figure, or the state that the document prints in its place."""
    if mark.low is None or mark.high is None:
        return mark.state.replace("_", " ")
    scale = scale_of(mark.unit, (mark.low, mark.high))
    numbers = dict.fromkeys(map(scale.text, (mark.low, mark.high)))
    return f"{' to '.join(numbers)} {scale.unit}"


def remarks(results: Iterable[ReportResult]) -> list[str]:
    """Return why a number that rests on these results is not for publication, in few words."""
    return [mark.name for mark in everywhere_marks(results)]


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


def caption_scopes(points: Iterable[Point]) -> list[str]:
    """Return the sentence of a caption that says what the meters measured."""
    parts = sorted({str(scope) for point in points if (scope := point.fields.get(SCOPE)) is not None})
    return [f"Energy is that of the {' and the '.join(parts)}."] if parts else []
