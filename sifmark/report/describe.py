"""Words of a report: names as labels and as names of files, numbers, configurations, failures and reservations."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sifmark.core.console import counted, printable
from sifmark.report.results import (
    Document,
    Failure,
    Point,
    PublishedMark,
    ReportResult,
    ReportResults,
    everywhere_marks,
)
from sifmark.results.catalogue import MICROBENCHMARK, column_of
from sifmark.results.comparison.compatibility import NUMERICS, format_value
from sifmark.results.comparison.intervals import CONFIDENCE, Mean
from sifmark.results.comparison.observation import (
    CONCURRENCY,
    NODES,
    PLATFORM,
    PRECISION,
    SERVING_LOAD,
    USERS,
    Observation,
)
from sifmark.results.comparison.repeats import varying_fields
from sifmark.results.comparison.scaling import BATCH, DEVICES, EXECUTION, STEPS, STRATEGY, THREADS, follows_devices
from sifmark.results.comparison.tables import EXPECTED
from sifmark.results.marks import MARKS, Mark
from sifmark.results.numbers import Scale, format_quantity, scale_of

MIB_PER_GIB = 1024.0
LONGEST_NAME = 36  # characters of a label: fonts of readers may be wider than ours
PER_DEVICE = "batch_size_per_device"  # of runs that keep it along their devices
# The fields that readers look for first, in the order of columns.
FIRST_FIELDS = (STRATEGY, DEVICES, NODES, PRECISION, CONCURRENCY, USERS, BATCH)
_CHOICES = (DEVICES, STRATEGY, BATCH)  # they are worth a line of their own, whatever follows from them
# What usually follows from other fields; of a load, from its rate and its clients.
_FOLLOW = (STEPS, EXECUTION, f"{SERVING_LOAD}arrivals", f"{SERVING_LOAD}find_goodput")
_HEADS = {
    DEVICES: "devices",
    CONCURRENCY: "clients",
    USERS: "clients",
    BATCH: "batch size",
    "host.cpu_model.value": "CPU",
    "host.hostname.value": "host",
    "accelerator.name": "accelerator",
    "numerics.state": "correctness",
}
# How a value reads as part of a configuration.
_VALUES = {
    **dict.fromkeys((PRECISION, STRATEGY, "workload.name", "data"), "{}"),
    DEVICES: "{} devices",
    NODES: "{} nodes",
    BATCH: "batch size {}",
    **dict.fromkeys((CONCURRENCY, USERS), "{} clients"),
    f"{SERVING_LOAD}rate": "{} requests/s",
    THREADS: "{} threads",
    PER_DEVICE: "batch size {} per device",
    "configuration.micro_batch_size": "micro-batch {}",
}
_NOT_OF_NAMES = re.compile(r"[^a-z0-9]+")


def slug(*words: str) -> str:
    """Return words as the name of a file or of a place on a page: lower-case letters, digits and hyphens."""
    return _NOT_OF_NAMES.sub("-", "-".join(filter(None, words)).lower())[:120].strip("-") or "unnamed"


def short(name: str, longest: int = LONGEST_NAME) -> str:
    """Return an untrusted name as a label: one that is too long loses its middle."""
    half, name = longest // 2, name.strip() or "unnamed"
    return name if len(name) <= longest else f"{name[:half]}…{name[-half + 1 :]}"


def distinct(labels: Iterable[str]) -> list[str]:
    counts: Counter[str] = Counter()
    unique: list[str] = []
    for label in labels:
        counts[label] += 1
        unique.append(label if counts[label] == 1 else f"{label} ({counts[label]})")
    return unique


def clip(text: object, longest: int = 160) -> str:
    """Return untrusted text as one printable line, without its middle if it is long."""
    line = printable(unicodedata.normalize("NFC", str(text)))
    half = longest // 2
    return line if len(line) <= longest else f"{line[:half]} … {line[-half:]}"


def listed(words: Sequence[str]) -> str:
    """Return words as a text lists them: `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def factor_text(value: float) -> str:
    """Return a ratio with two decimals, of a large or small one three digits: `0.82`, `17.3`, `0.0123`."""
    return f"{value:.2f}" if 0.1 <= value < 10 else f"{value:.3g}"


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


def basis_of(points: Sequence[Point]) -> str:
    """Return what numbers are, in a sentence: `Geometric means of 3 repeats, with 95% intervals.`"""
    counts = sorted({point.mean.count for point in points})
    if counts == [1]:
        return "Single runs, without intervals."
    kind = "Geometric means" if all(point.mean.geometric for point in points) else "Means"
    repeats = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    intervals = any(point.mean.low is not None for point in points)
    return f"{kind} of {repeats} repeats" + (f", with {CONFIDENCE:.0%} intervals." if intervals else ".")


def all_marks(marked: Iterable[Any]) -> tuple[Mark, ...]:
    """Return the `marks` of some numbers, each once, in the order of legends."""
    marks = {mark for each in marked for mark in each.marks}
    return tuple(mark for mark in MARKS if mark in marks)


def legend_of(marks: Sequence[Mark]) -> str:
    """Return what the letters of marks mean, as a sentence; nothing without any."""
    return f"Not for publication: {', '.join(f'{mark.symbol} {mark.name}' for mark in marks)}." if marks else ""


def titled(name: str, unit: str) -> str:
    return name if unit in ("", "1") else f"{name} [{unit}]"


def describe(point: Point, label: str, place: str) -> str:
    """Return what a mark shows: `alpha, batch size 64: 412 images/s ± 1.7 %, 3 repeats; test base`."""
    what = f"{label}, {place}: {quantity_text(point.mean, point.unit)}, {counted(point.mean.count, 'repeat')}"
    return "; ".join([what, *remarks(point.results)])


def describe_failure(failure: Failure, place: str) -> str:
    return f"{short(failure.system)}, {place}: {failure_text(failure)}"


def describe_published(mark: PublishedMark, place: str) -> str:
    """Return a published figure with its source, and with what differs."""
    what = f"published, {mark.source}: {mark.device}, {place}: {published_text(mark)}"
    return "; ".join([what, *mark.remarks])


def failure_text(failure: Failure) -> str:
    """Return why a result is no measurement: `out of memory`, `wrong results`, `smoke run`."""
    if failure.state != "completed":
        return state_text(failure.state)
    return "correctness check failed" if NUMERICS in failure.fields else "smoke run"


def state_text(state: str) -> str:
    """Return the state of a run in words: `out of memory`."""
    return "inconsistent (its numbers contradict each other)" if state == "inconsistent" else state.replace("_", " ")


def published_text(mark: PublishedMark) -> str:
    """Return a published figure, or the state that the document prints in its place."""
    if mark.low is None or mark.high is None:
        return state_text(mark.state)
    scale = scale_of(mark.unit, (mark.low, mark.high))
    numbers = dict.fromkeys(map(scale.text, (mark.low, mark.high)))
    return f"{' to '.join(numbers)} {scale.unit}"


def remarks(results: Iterable[ReportResult]) -> list[str]:
    """Return why a number that rests on these results is not for publication, in few words."""
    return [mark.name for mark in everywhere_marks(results)]


def memory_of_device(document: Document) -> float | None:
    """Return the memory of one device in MiB: results have that of all of a run together. A CPU has its host's."""
    accelerator = document["accelerator"]
    memory, count = accelerator.get("memory_mib"), accelerator.get("count") or 1
    return None if memory is None or accelerator["kind"] == "cpu" else float(memory) / count


def head(field: str) -> str:
    return _HEADS.get(field) or column_of(field).replace("_", " ")


def field_text(name: str, value: Any) -> str:
    """Return the value of a field in words: `bf16`, `batch size 64`, `4 devices`, `compile true`."""
    text = short(format_value(value))
    words = _VALUES.get(name, f"{head(name)} {{}}").format(text)
    return words.removesuffix("s") if text == "1" else words


def configuration_text(fields: Mapping[str, Any], names: Iterable[str] = FIRST_FIELDS) -> str:
    """Return what of a configuration readers look for first, in words: `bf16, batch size 64, 4 devices`."""
    usual = ((DEVICES, 1), (NODES, 1))
    values = [(name, fields.get(name)) for name in names]
    said = [pair for pair in values if pair[1] not in (None, EXPECTED.get(pair[0])) and pair not in usual]
    return ", ".join(field_text(name, value) for name, value in said)


def configuration_of(observation: Observation, names: Iterable[str] = FIRST_FIELDS) -> str:
    """Return the same of a result; the batch size of a microbenchmark says nothing."""
    meant = [name for name in names if name != BATCH or observation.group.task != MICROBENCHMARK]
    return configuration_text(observation.fields, meant)


def fields_apart(points: Sequence[Point], by: str) -> list[str]:
    """Return the fields in which points differ, but for that which names their systems.

    What describes a platform and is the same throughout a system is none of them: it names the system.
    """
    systems: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        systems[point.system].append(point)
    within = {name for members in systems.values() for name in varying_fields([point.row for point in members])}
    between = varying_fields([point.row for point in points])
    return [name for name in between if name != by and (name in within or name not in PLATFORM)]


def variant_fields(results: ReportResults, points: Sequence[Point], *places: str) -> list[str]:
    """Return the fields that tell the series of a system apart, without what only follows from the others."""
    names = [name for name in fields_apart(points, results.by) if name not in places]
    chosen = [name for name in names if not _follows(name)]
    systems = [[point for point in points if point.system == name] for name in results.systems]
    return [name for name in names if name in chosen or not _determined(name, systems, (*places, *chosen))]


def variant(fields: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return what distinguishes a series from others of its system, in words; nothing if it has no others."""
    return ", ".join(field_text(name, fields[name]) for name in names if fields.get(name) is not None)


def _follows(name: str) -> bool:
    return name not in _CHOICES and (follows_devices(name) or name in _FOLLOW)


def _determined(name: str, systems: Iterable[Sequence[Point]], others: Sequence[str]) -> bool:
    """Return whether a field has one value in each system where some others are the same."""
    for points in systems:
        values: dict[Any, set[Any]] = defaultdict(set)
        for point in points:
            values[tuple(point.fields.get(other) for other in others)].add(point.fields.get(name))
        if any(len(each) > 1 for each in values.values()):
            return False
    return True
