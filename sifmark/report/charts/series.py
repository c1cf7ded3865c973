"""Series of points: those of one system, or of one variant of its runs, that a chart joins by a line."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sifmark.report.charts.glyphs import Curve, Datum, Failed, Printed
from sifmark.report.charts.theme import NEUTRAL, Style, style_of
from sifmark.report.describe import describe, describe_failure, describe_published
from sifmark.report.results import Failure, Point, PublishedMark, ReportResults, Section
from sifmark.report.texts import distinct, short
from sifmark.report.variants import PART_OF_BATCH, system_labels, variant, variant_fields
from sifmark.results.comparison.scaling import BATCH, DEVICES, follows_devices
from sifmark.results.numbers import format_number

MOST_LINES = 16  # of a chart: more are in its table alone


@dataclass(frozen=True)
class PointSeries:
    """Points of one system that differ in nothing but their place."""

    label: str
    style: Style
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Place:
    """The axis along which runs differ: a field, and what it is called."""

    field: str  # by its dotted path in a result
    name: str  # batch size
    followers: tuple[str, ...] = ()  # fields that may differ along a line, as they follow from the place

    def of(self, fields: Mapping[str, Any]) -> float | None:
        """Return where on the axis a result is, or None if it has no place there."""
        value: Any = fields.get(self.field)
        return value if type(value) in (int, float) and math.isfinite(value) and value > 0 else None

    def number(self, fields: Mapping[str, Any]) -> str:
        """Return the place as text: `64`."""
        value = self.of(fields)
        return "-" if value is None else str(value) if isinstance(value, int) else format_number(value)

    def text(self, fields: Mapping[str, Any]) -> str:
        """Return the place in words: `batch size 64`."""
        return f"{self.name} {self.number(fields)}"


def series_of(results: ReportResults, points: Iterable[Point], place: Place) -> list[PointSeries]:
    """Return the series of some points along an axis, by system and variant, each in the order of its places."""
    placed = [point for point in points if place.of(point.fields) is not None]
    names = variant_fields(results, placed, place.field, *place.followers)
    groups: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in sorted(placed, key=lambda point: results.systems.index(point.system)):
        groups[point.system, variant(point.fields, names)].append(point)
    labels = labels_of(results, groups)
    looks = styles_of(results, [system for system, _ in groups])
    return [
        PointSeries(label, style, tuple(sorted(members, key=lambda point: place.of(point.fields) or 0)))
        for members, label, style in zip(groups.values(), labels, looks, strict=True)
    ]


def most_complete(every: Sequence[Curve]) -> list[Curve]:
    """Return as many lines as a chart can show, those with the most marks, in their order."""
    chosen = sorted(every, key=lambda line: -len(line.marks))[:MOST_LINES]
    return [line for line in every if line in chosen]


def labels_of(results: ReportResults, lines: Iterable[tuple[str, str]]) -> list[str]:
    """Return labels of lines from their systems and variants; variants alone where all are of one system."""
    lines = list(lines)
    names = system_labels(results)
    if len(lines) > 1 and len({system for system, _ in lines}) == 1:
        return distinct(words or names[system] for system, words in lines)
    return distinct(", ".join(filter(None, [names[system], words])) for system, words in lines)


def styles_of(results: ReportResults, systems: Sequence[str]) -> list[Style]:
    """Return the styles of lines by their systems."""
    places = [results.systems.index(system) for system in systems]
    if len(set(systems)) == len(systems):
        return [style_of(place) for place in places]
    return [style_of(place, line) for line, place in enumerate(places)]


def paired(section: Section, first: str, second: str) -> list[tuple[Point, Point]]:
    """Return the points of two metrics that are of the same results."""
    seconds = {identity(point): point for point in section.points(second)}
    return [(point, seconds[identity(point)]) for point in section.points(first) if identity(point) in seconds]


def identity(point: Point) -> tuple[str, ...]:
    """Return what points of different metrics share if they are of the same results."""
    return tuple(each.observation.id for each in point.results)


def lines_of(series: Iterable[PointSeries], place: Place) -> list[Curve]:
    """Return series as lines of a chart."""
    return [
        Curve(each.label, each.style, tuple(mark_of(point, each.label, place) for point in each.points))
        for each in series
    ]


def mark_of(point: Point, label: str, place: Place) -> Datum:
    """Return a point as the mark of a chart."""
    mean = point.mean
    x, y = place.of(point.fields), mean.value
    if x is None or y is None:
        raise ValueError("a mark needs a place and a value")
    words = describe(point, label, place.text(point.fields))
    repeats = tuple(point.row.values(point.metric))
    return Datum(x, y, mean.low, mean.high, repeats, words, f"#{point.results[0].anchor}")


def failed_runs(results: ReportResults, failures: Iterable[Failure], place: Place) -> list[Failed]:
    """Return the runs that failed at a place of an axis, for the bottom of a chart."""
    failed = []
    for failure in failures:
        fields = failure.result.observation.fields
        if (x := place.of(fields)) is not None:
            style = style_of(results.systems.index(failure.system))
            words = describe_failure(failure, place.text(fields))
            failed.append(Failed(x, style, words, f"#{failure.result.anchor}"))
    return failed


def printed_figures(marks: Iterable[PublishedMark], place: Place) -> tuple[list[Printed], list[Failed]]:
    """Return the published figures that have a place on an axis, and those of runs that failed there."""
    printed, failed = [], []
    for mark in marks:
        if (x := place.of(mark.conditions)) is None:
            continue
        words = describe_published(mark, place.text(mark.conditions))
        if mark.low is None or mark.high is None:
            failed.append(Failed(x, NEUTRAL, words, mark.url))
        else:
            others = sorted(
                (name, str(value)) for name, value in mark.conditions.items() if not _goes_with(name, place)
            )
            curve = f"{mark.url} {mark.device} {others}"
            printed.append(Printed(x, mark.low, mark.high, curve, words, mark.url, _short_device(mark.device)))
    last = {each.curve: each for each in sorted(printed, key=lambda each: float(each.x))}
    return [each if each is last[each.curve] else replace(each, note="") for each in printed], failed


def _goes_with(name: str, place: Place) -> bool:
    """Return whether a printed condition differs along an axis because the place does."""
    if place.field == BATCH and name == PART_OF_BATCH:
        return True
    return name in (place.field, *place.followers) or (place.field == DEVICES and follows_devices(name))


def _short_device(title: str) -> str:
    """Return the title of a device without where it is: `NVIDIA A100 40 GB`."""
    return short(re.split(r", | of ", title)[0])
