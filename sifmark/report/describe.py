"""Measured and published numbers, failures and reservations in words."""

from collections.abc import Iterable

from sifmark.report.results import Document, Failure, Point, PublishedMark, ReportResult, everywhere_marks
from sifmark.report.texts import short
from sifmark.results.comparison.compatibility import NUMERICS
from sifmark.results.comparison.intervals import Mean
from sifmark.results.numbers import Scale, format_quantity, scale_of

MIB_PER_GIB = 1024.0


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


def describe_failure(failure: Failure, place: str) -> str:
    """Return the state of a run in words."""
    return f"{short(failure.system)}, {place}: {failure_text(failure)}"


def describe_published(mark: PublishedMark, place: str) -> str:
    """Return a published figure with its source, and with what differs."""
    what = f"published, {mark.source}: {mark.device}, {place}: {published_text(mark)}"
    return "; ".join([what, *mark.remarks])


def describe(point: Point, label: str, place: str) -> str:
    """Return what a mark shows: `alpha, batch size 64: 412 images/s ± 1.7 %, 3 repeats; test base`."""
    what = f"{label}, {place}: {quantity_text(point.mean, point.unit)}, {repeats_text(point.mean.count)}"
    return "; ".join([what, *remarks(point.results)])


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


def memory_of_device(document: Document) -> float | None:
    """Return the memory of one device in MiB: results have that of all of a run together, which CPUs share."""
    accelerator = document["accelerator"]
    memory, count = accelerator.get("memory_mib"), accelerator.get("count") or 1
    return None if memory is None else float(memory) / (1 if accelerator["kind"] == "cpu" else count)
