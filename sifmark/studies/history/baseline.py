"""Named baselines: the metrics of a set of results, in one file, to compare later results with."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sifmark import __version__
from sifmark.core.errors import SifmarkError, UsageError, unknown_name
from sifmark.core.files import read_bounded, write_json
from sifmark.core.locks import exclusive_lock
from sifmark.core.schemas import check_document
from sifmark.results.catalogue import spelled
from sifmark.results.comparison.collection import load_observations
from sifmark.results.comparison.compatibility import Excluded, exclusion_fields
from sifmark.results.comparison.observation import ComparisonGroup, Observation, Session
from sifmark.results.comparison.query import Query
from sifmark.results.documents import MetricValue
from sifmark.results.load import parse
from sifmark.results.marks import BUSY, STALLED_RUN, UNSTEADY
from sifmark.results.versions import is_in_todays_terms, with_full_attention

SCHEMA = "baseline-1.1"
LARGEST = 256 << 20  # bytes of a file; ten thousand results take about a tenth
# Facts of each repeat beside its numbers, by their paths in a result. They distinguish no rows of a comparison.
ABOUT = {
    "started": "started",
    "image": "provenance.image.build_key",
    "image_file": "provenance.image.file.identity",
    "driver": "device_conditions.driver.value",
    "host": "host.hostname.value",
    "seed": "configuration.seed",
}
_ROW_FIELDS = frozenset((ABOUT["image"],))  # that an observation has anyway
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MARKS_OF_FLAGS = {"unsteady": UNSTEADY.code, "disturbed": BUSY.code, "stalled": STALLED_RUN.code}  # of version 1.0
_REMAKE = "keep it again: sifmark study.baseline {name} RESULTS --force"

Document = dict[str, Any]


@dataclass(frozen=True)
class Repeat:
    """A run of a baseline: the observation that a comparison takes, and facts about the run by the names of ABOUT."""

    observation: Observation
    about: dict[str, Any]


@dataclass(frozen=True)
class Baseline:
    """A named baseline."""

    name: str
    created: str  # UTC
    sources: tuple[str, ...]  # where its results were
    repeats: tuple[Repeat, ...]

    @property
    def rows(self) -> int:
        """How many configurations it has."""
        return len(_by_row(self.repeats))

    def rows_with_fewer(self, repeats: int) -> int:
        """Return how many configurations have fewer repeats."""
        return sum(len(row) < repeats for row in _by_row(self.repeats).values())

    @property
    def dates(self) -> tuple[str, str]:
        """The days of the first and the last of its runs."""
        days = sorted(repeat.about["started"][:10] for repeat in self.repeats)
        return days[0], days[-1]

    def observations(self, more_fields: Iterable[str] = ()) -> Iterator[Observation]:
        """Yield its runs as the baselines of a comparison; those of `more_fields` that it keeps distinguish them."""
        names = {path: name for name, path in ABOUT.items() if path in set(more_fields)}
        for repeat in self.repeats:
            facts = {path: repeat.about.get(name) for path, name in names.items()}
            yield replace(repeat.observation, fields=repeat.observation.fields | facts)


@dataclass(frozen=True)
class NewBaseline:
    """A baseline that was made, and what of the results is not in it."""

    baseline: Baseline
    excluded: tuple[Excluded, ...]
    duplicates: int


def make_baseline(name: str, paths: Sequence[str]) -> NewBaseline:
    """Return a baseline of all completed, correct results of files, folders or globs.

    Raises UsageError for a name that is no file name, SifmarkError if a document is not valid or nothing is left.
    """
    _require_name(name)
    collection = load_observations(paths, Query(every_metric=True, more_fields=tuple(ABOUT.values())))
    if collection.invalid:
        cause = f"{len(collection.invalid)} documents are not valid, for example {collection.invalid[0]}"
        remedy = "remove them from what the baseline is made of; sifmark results.validate lists them"
        raise SifmarkError(cause, remedy, code="result-invalid")
    excluded = [Excluded(each, names) for each in collection.observations if (names := exclusion_fields(each))]
    left_out = {id(each.result) for each in excluded}
    kept = [_repeat(each) for each in collection.observations if id(each) not in left_out]
    if not kept:
        cause = f"no result is left for the baseline {name!r}: {len(excluded)} did not complete or are not correct"
        raise SifmarkError(cause, "sifmark results.show says how they ended", code="result-missing")
    created = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    baseline = Baseline(name, created, tuple(paths), tuple(kept))
    return NewBaseline(baseline, tuple(excluded), collection.duplicates)


def baseline_file(folder: Path, name: str) -> Path:
    """Return where a baseline is. Raises UsageError for a name that is no file name."""
    _require_name(name)
    return folder / f"{name}.json"


def write_baseline(baseline: Baseline, folder: Path, replace_it: bool = False) -> Path:
    """Write a baseline into a folder and return its file. Raises UsageError if it exists and is not to be replaced."""
    file = baseline_file(folder, baseline.name)
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(file):
        if file.exists() and not replace_it:
            remedy = "choose another name, or replace it with --force"
            raise UsageError(f"the baseline {baseline.name!r} exists: {file}", remedy, code="baseline-exists")
        write_json(file, _document(baseline))
    return file


def read_baseline(folder: Path, name: str) -> Baseline:
    """Return a baseline. Raises UsageError if there is none of this name, SifmarkError if its file is damaged."""
    file = baseline_file(folder, name)
    if not file.is_file():
        if names := baseline_names(folder):
            raise unknown_name("baseline", name, names)
        remedy = f"keep one: sifmark study.baseline {name} RESULTS"
        raise UsageError(f"no baseline {name!r}: {folder} has none", remedy, code="unknown-name")
    try:
        document = parse(read_bounded(file, LARGEST))
    except (OSError, ValueError) as error:
        raise SifmarkError(f"{file}: {error}", _REMAKE.format(name=name), code="document-invalid") from error
    check_document(SCHEMA, document, str(file))
    try:
        repeats = tuple(_read_repeat(row, repeat) for row in document["rows"] for repeat in row["repeats"])
    except KeyError as error:  # which a schema cannot refuse
        raise SifmarkError(f"{file}: no unit of {error}", _REMAKE.format(name=name), code="document-invalid") from error
    return Baseline(name, document["created"], tuple(document["sources"]), repeats)


def baseline_names(folder: Path) -> list[str]:
    """Return the names of the baselines in a folder."""
    return sorted(path.stem for path in folder.glob("*.json") if _NAME.fullmatch(path.stem))


def _require_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        cause = f"{name!r} is no name for a baseline"
        raise UsageError(
            cause, "letters, digits, dots, dashes and underscores, for example 2026-11", code="invalid-option"
        )


def _repeat(observation: Observation) -> Repeat:
    facts = {name: observation.fields[path] for name, path in ABOUT.items()}
    own = {path for path in ABOUT.values() if path not in _ROW_FIELDS}
    fields = {name: value for name, value in observation.fields.items() if name not in own}
    return Repeat(replace(observation, side="against", fields=fields), facts)


def _by_row(repeats: Iterable[Repeat]) -> dict[Any, list[Repeat]]:
    """Return repeats by what those of one row have in common: group, fields, and the units of their metrics."""
    rows: dict[Any, list[Repeat]] = {}
    for repeat in repeats:
        each = repeat.observation
        key = each.group, frozenset(each.fields.items()), frozenset(_units(each).items())
        rows.setdefault(key, []).append(repeat)
    return rows


def _units(observation: Observation) -> dict[str, str]:
    return {name: number.unit for name, number in observation.numbers.items()}


def _document(baseline: Baseline) -> Document:
    return {
        "schema_version": SCHEMA.removeprefix("baseline-"),
        "name": baseline.name,
        "created": baseline.created,
        "sifmark": __version__,
        "sources": list(baseline.sources),
        "rows": [_row(repeats) for repeats in _by_row(baseline.repeats).values()],
    }


def _row(repeats: Sequence[Repeat]) -> Document:
    first = repeats[0].observation
    return {
        "title": first.title,
        "group": first.group._asdict(),
        "fields": first.fields,
        "units": _units(first),
        "missing": _reasons(repeats),
        "repeats": [_run(repeat) for repeat in repeats],
    }


def _reasons(repeats: Iterable[Repeat]) -> dict[str, str]:
    """Return by metric why the first of some repeats that has no value of it has none."""
    reasons: dict[str, str] = {}
    for name, number in (item for repeat in repeats for item in repeat.observation.numbers.items()):
        if number.value is None and number.reason:
            reasons.setdefault(name, number.reason)
    return reasons


def _run(repeat: Repeat) -> Document:
    each = repeat.observation
    return {
        "id": each.id,
        "file": each.file,
        **repeat.about,
        "marks": sorted(each.marks),
        "session": {"boot": each.session.boot, "job": each.session.job},
        "values": {name: number.value for name, number in each.numbers.items()},
    }


def _read_repeat(row: Document, run: Document) -> Repeat:
    units, missing = {name: spelled(name, unit) for name, unit in row["units"].items()}, row["missing"]
    numbers = {
        name: MetricValue(value, units[name], missing.get(name) if value is None else None)
        for name, value in run["values"].items()
    }
    group = ComparisonGroup(**row["group"])
    if not is_in_todays_terms(row["fields"].get("schema_version", "1.0")):
        numbers = with_full_attention(numbers, group.identity, "", _without)
    return Repeat(
        Observation(
            side="against",
            file=run["file"],
            id=run["id"],
            title=row["title"],
            group=group,
            fields=row["fields"],
            numbers=numbers,
            marks=_marks(run),
            session=Session(run["host"] or "", **run.get("session", {}), day=run["started"][:10]),
            started=run["started"],
            host=run["host"],
        ),
        {name: run[name] for name in ABOUT},
    )


def _marks(run: Document) -> frozenset[str]:
    """Return the marks of a run, with those of kinds that this version does not know."""
    return frozenset(run.get("marks", ())) | {_MARKS_OF_FLAGS[flag] for flag in run.get("flags", ())}


def _without(number: MetricValue, reason: str) -> MetricValue:
    """Return a metric without its value; one that has none keeps its own reason."""
    return number if number.value is None else MetricValue(None, number.unit, reason)
