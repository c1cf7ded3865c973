"""What pages say of measurements: for each series the newest repeats, as `compare` has them, and what is left out."""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sifmark.report.describe import FIRST_FIELDS, configuration_text, field_text, quantity_text
from sifmark.report.results import ACCELERATOR, SIGNER, UNKNOWN, Failure, Point, ReportResult, ReportResults
from sifmark.report.site.read import SiteResult
from sifmark.report.workloads import Workload, workloads_of
from sifmark.results.comparison.compatibility import Excluded
from sifmark.results.comparison.observation import PLATFORM
from sifmark.results.comparison.repeats import varying_fields
from sifmark.results.comparison.scaling import THROUGHPUT
from sifmark.results.marks import MARKS, Mark
from sifmark.studies.history.environment import is_variable
from sifmark.studies.history.series import ABOUT_RUNS, series_key

MOST_ROWS = 1000  # of a table
MOST_FILES = 10  # of a row
_ENERGY = "energy_per_unit"
_LATENCIES = {
    "latency_p99": "p99",
    "time_to_first_token_p50": "to the first token",
    "time_between_tokens_p50": "between tokens",
}
_HIDDEN = {*PLATFORM, *ABOUT_RUNS, "schema_version", "power.scope", SIGNER}


@dataclass(frozen=True)
class SeriesRow:
    """The newest repeats of one configuration on one system."""

    workload: str  # its name, as pages are called
    title: str
    task: str
    source: str
    system: str
    device: str
    settings: str
    repeats: int
    text: str  # its throughput, of generation in tokens, with unit and interval
    energy: str
    latency: str
    order: tuple[float | None, float | None, float | None]  # throughput, latency and energy, by which to sort
    marks: tuple[Mark, ...]
    day: str  # of the newest run
    files: tuple[str, ...]
    more_files: int
    ids: tuple[str, ...]
    signer: str  # the key that vouches for it; empty where signatures do not count


@dataclass(frozen=True)
class FailureRow:
    """A result that is no measurement, and why."""

    workload: str
    title: str
    task: str
    system: str
    device: str
    settings: str
    state: str
    reason: str
    day: str
    file: str
    id: str
    signer: str  # the key that vouches for it; empty where signatures do not count


@dataclass(frozen=True)
class Measurements:
    """What a page says of some results: a row for each series, the newest first within a workload."""

    rows: tuple[SeriesRow, ...]
    failures: tuple[FailureRow, ...]
    refused: tuple[str, ...]  # what `compare` refuses, and why

    @property
    def sections(self) -> dict[tuple[str, str, str], list[SeriesRow]]:
        """The rows by title of the workload, task and data."""
        sections: dict[tuple[str, str, str], list[SeriesRow]] = defaultdict(list)
        for row in self.rows:
            sections[row.title, row.task, row.source].append(row)
        return sections


def report_results(members: Iterable[SiteResult], by: str) -> ReportResults:
    """Return results as reports take them, with the parts of documents that pages and their charts read."""
    results = tuple(ReportResult(each.observation, _document(each), marks_named(each.marks)) for each in members)
    return ReportResults(members=results, invalid=(), unsigned=(), duplicates=0, by=by)


def _document(result: SiteResult) -> dict[str, Any]:
    return {
        "workload": {"name": result.workload, "unit": result.unit},
        "status": {"state": result.state, "message": result.message},
        "accelerator": {"memory_mib": None, "count": None},
        "steps": {"seconds": ()},
        "points": None,
    }


def measured(members: Sequence[SiteResult], by: str) -> Measurements:
    """Return what `compare` says of some results, metric by metric, with systems named by a field."""
    results = report_results(members, by)
    rows = [row for workload in workloads_of(results) for _, row in newest_rows(workload)]
    failures = sorted(results.failures, key=lambda each: (_started(each), each.result.observation.id), reverse=True)
    titles = {section.key.identity: section.title for section in results.sections}
    refused = {f"{titles[each.group.identity]}, {each.group.task}: {each.difference}" for each in results.refused}
    return Measurements(tuple(sorted(rows, key=_order)), tuple(map(_failure, failures)), tuple(sorted(refused)))


def system_of(result: SiteResult, by: str) -> str:
    return _name(result.observation.fields, by)


def device_of(result: SiteResult) -> str:
    return _name(result.observation.fields, ACCELERATOR)


def marks_named(*names: Iterable[str]) -> tuple[Mark, ...]:
    """Return the marks of these names, each once, in the order of legends."""
    every = {name for each in names for name in each}
    return tuple(mark for mark in MARKS if mark.name in every)


def _name(fields: Mapping[str, Any], by: str) -> str:
    return UNKNOWN if fields.get(by) is None else str(fields[by])


def newest_rows(workload: Workload) -> Iterator[tuple[Point, SeriesRow]]:
    """Yield the newest repeats of each series, with what pages say of them."""
    newest: dict[Hashable, tuple[str, Point]] = {}
    for point in workload.points(THROUGHPUT):
        key = series_key(point.observation, point.unit)
        last = max(each.started for each in point.row.observations)
        if key not in newest or newest[key][0] < last:
            newest[key] = last, point
    varying = varying_fields([point.row for _, point in newest.values()])
    shown = [name for name in varying if name not in {*_HIDDEN, *FIRST_FIELDS, workload.results.by}]
    for last, point in newest.values():
        rate, energy = workload.beside(point, workload.rate) or point, workload.beside(point, _ENERGY)
        latencies = {words: other for name, words in _LATENCIES.items() if (other := workload.beside(point, name))}
        others = (field_text(name, point.fields.get(name)) for name in shown if not is_variable(name))
        files = [each.file for each in point.row.observations]
        row = SeriesRow(
            workload=workload.name,
            title=workload.section.title,
            task=workload.section.key.task,
            source=workload.section.key.source,
            system=point.system,
            device=_name(point.fields, ACCELERATOR),
            settings=", ".join(filter(None, (configuration_text(point.fields), *others))),
            repeats=len(files),
            text=quantity_text(rate.mean, rate.unit),
            energy=quantity_text(energy.mean, energy.unit) if energy else "",
            latency=", ".join(f"{quantity_text(each.mean, each.unit)} {words}" for words, each in latencies.items()),
            order=(
                rate.value,
                next((each.value for each in latencies.values()), None),
                energy.value if energy else None,
            ),
            marks=point.marks,
            day=last[:10],
            files=tuple(files[:MOST_FILES]),
            more_files=max(0, len(files) - MOST_FILES),
            ids=tuple(each.id for each in point.row.observations),
            signer=str(point.fields.get(SIGNER, "")),
        )
        yield rate, row


def _started(failure: Failure) -> str:
    return failure.result.observation.started


def _failure(failure: Failure) -> FailureRow:
    observation, document = failure.result.observation, failure.result.document
    return FailureRow(
        workload=document["workload"]["name"],
        title=observation.title,
        task=observation.group.task,
        system=failure.system,
        device=_name(observation.fields, ACCELERATOR),
        settings=configuration_text(observation.fields),
        state=failure.state,
        reason=document["status"]["message"] or Excluded(observation, failure.fields).reason,
        day=_started(failure)[:10],
        file=observation.file,
        id=observation.id,
        signer=str(observation.fields.get(SIGNER, "")),
    )


def _order(row: SeriesRow) -> tuple[Any, ...]:
    return row.workload, row.title, row.task, row.source, row.system, row.device, _by_number(row.settings), row.ids


def _by_number(text: str) -> list[tuple[int, str]]:
    """Return a key by which `batch size 8` comes before `batch size 16`."""
    parts = re.findall(r"\d{1,18}|\D+|\d", text, re.ASCII)
    return [(int(part), "") if part.isascii() and part.isdigit() else (0, part) for part in parts]
