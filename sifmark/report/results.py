"""The results of a report: read once, each run counted once, and compared metric by metric as `compare` does.

A number is in a report only if `compare` would print it: charts and tables take theirs from `ReportResults.compare`.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from sifmark.results.catalogue import column_of
from sifmark.results.comparison.compare import Comparison, compare_each
from sifmark.results.comparison.compatibility import Excluded, Incompatibility, exclusion_fields, format_value
from sifmark.results.comparison.intervals import Mean, Ratio
from sifmark.results.comparison.observation import Observation
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.comparison.scaling import THROUGHPUT
from sifmark.results.comparison.sessions import BETWEEN
from sifmark.results.identity import RunIdentity, identity_of
from sifmark.results.marks import Mark, marks_of_number, marks_of_result

SITE, ACCELERATOR = "site", "accelerator.name"
SIGNER = "signer"  # of a register: the trusted key that signed a result, which is in no document
OURS = "results"  # the side of a report's own results; that of a reference is the other
UNKNOWN = "unknown"  # the name of a system that results do not name

Document = dict[str, Any]


class SectionKey(NamedTuple):
    """What the results of a section of a report have in common, failed runs included."""

    identity: str
    task: str
    source: str


@dataclass(frozen=True)
class ReportResult:
    """One result with its document."""

    observation: Observation
    document: Document
    own_marks: tuple[Mark, ...] | None = None  # where the document is not the whole one
    own_origin: RunIdentity | None = None  # where labels stand for names in the document

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        return marks_of_result(self.document) if self.own_marks is None else self.own_marks

    @cached_property
    def origin(self) -> RunIdentity:
        """Which run it is of. It may have names that a report must not say."""
        return self.own_origin or origin_of(self.document)

    @property
    def anchor(self) -> str:
        return f"result-{self.observation.id}"


def origin_of(document: Document) -> RunIdentity:
    """Return which run a valid result is of; one that no option named a site for may have one of its environment."""
    identity = identity_of(document)
    return replace(identity, site=identity.site or document["site"] or "")


def everywhere_marks(results: Iterable[ReportResult]) -> tuple[Mark, ...]:
    """Return the marks that accompany a number that rests on these results wherever it appears."""
    return tuple(mark for mark in marks_of_number(each.marks for each in results) if mark.everywhere)


@dataclass(frozen=True)
class Point:
    """What the repeats of one configuration on one system measured of one metric."""

    system: str
    row: RepeatGroup
    metric: str
    unit: str
    results: tuple[ReportResult, ...]  # the repeats

    @property
    def mean(self) -> Mean:
        """The mean over repeats with its interval; without a value where nothing was measured."""
        return self.row.means[self.metric]

    @property
    def value(self) -> float:
        """Its value; 0 without one."""
        return self.mean.value or 0.0

    @property
    def ratio(self) -> Ratio | None:
        """The ratio to the baseline system; None without one, and on it."""
        return self.row.ratios.get(self.metric)

    @property
    def fields(self) -> Mapping[str, Any]:
        """What distinguishes it, by the dotted path in a result."""
        return self.row.fields

    @property
    def observation(self) -> Observation:
        return self.results[0].observation

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        """The reasons not to publish the number: `mark.name` is for legends and descriptions."""
        return everywhere_marks(self.results)


@dataclass(frozen=True)
class Failure:
    """A result that is no measurement: it failed, is incorrect or a smoke run. Charts show it where it happened."""

    system: str
    result: ReportResult
    fields: tuple[str, ...]  # why, by the dotted path in a result: `status.state` ...

    @property
    def state(self) -> str:
        """The run's state: `out_of_memory` ..."""
        return str(self.result.document["status"]["state"])


@dataclass(frozen=True)
class PublishedMark:
    """A published figure beside results, as `compare --against published:NAME` has it. Charts draw it hollow."""

    key: SectionKey  # of the section that it belongs to
    source: str  # as a caption names it: `Nasari et al. 2022, table 1, section 3.1`
    url: str
    device: str
    metric: str
    unit: str
    low: float | None  # of a range both ends, else the same twice; None of a state
    high: float | None
    state: str  # `out_of_memory`, where the document prints that; else empty
    conditions: Mapping[str, Any]  # as printed, by the dotted path of a result: configuration.batch_size ...
    remarks: tuple[str, ...]  # what differs from the results beside it, or what the document does not print
    table: str = ""  # the published table that it is in: `pearc22/3`
    counterparts: frozenset[str] = frozenset()  # IDs of the results that `compare` puts beside it


@dataclass(frozen=True)
class OverPublished:
    """What was measured over what was published, of one figure and the results that are its counterpart."""

    table: str  # the source and place of the table that the figure is in
    label: str  # the values that distinguish its row and column in the table
    metric: str
    unit: str
    url: str
    ratio: Ratio
    published: str
    measured: str
    verdict: str  # the ratio in words
    results: tuple[ReportResult, ...]
    remarks: tuple[str, ...]  # what differs, or what the document does not print

    @property
    def marks(self) -> tuple[Mark, ...]:
        return everywhere_marks(self.results)


@dataclass(frozen=True)
class Section:
    """A workload and task with the data that it had: what can be compared with each other."""

    key: SectionKey
    title: str  # of the workload
    unit: str  # what is counted: images, tokens ...
    results: "ReportResults"

    @cached_property
    def workload(self) -> str:
        """The name of the workload: `resnet50`."""
        return str(self.members[0].document["workload"]["name"])

    @property
    def short_title(self) -> str:
        return self.title.partition(",")[0]

    def points(self, metric: str) -> list[Point]:
        """Return the points of a metric that have a value, in the order of `compare`; none where that refuses."""
        return [point for point in self.all_points(metric) if point.mean.value is not None]

    def all_points(self, metric: str) -> list[Point]:
        """Return the points of a metric, also those without a value, whose mean has the reason."""
        return list(self.results.points(metric).get(self.key, ()))

    @property
    def failures(self) -> list[Failure]:
        return [each for each in self.results.failures if section_of(each.result.observation) == self.key]

    def published(self, metric: str) -> list[PublishedMark]:
        """Return the published figures of a metric that belong beside the points of this section."""
        return [mark for mark in self.results.published if (mark.key, mark.metric) == (self.key, metric)]

    @property
    def members(self) -> list[ReportResult]:
        return list(self.results.by_section.get(self.key, ()))


@dataclass
class ReportResults:
    """All results of a report. Baselines of other studies may be among them, as a system of their own."""

    members: tuple[ReportResult, ...]
    invalid: tuple[str, ...]  # documents that are not valid: file and first problem
    unsigned: tuple[str, ...]  # documents that no trusted key has signed, if signatures count
    duplicates: int  # copies of results, which were counted once
    by: str  # the field that names the systems
    baseline: str = ""  # the system that others are divided by; empty without ratios
    published: tuple[PublishedMark, ...] = ()
    over_published: tuple[OverPublished, ...] = ()
    references: tuple[Observation, ...] = ()  # of other results, or a kept baseline: what all systems are divided by
    reference_name: str = ""
    signed: bool = False  # whether results count only if a trusted key has signed them
    between: float = BETWEEN  # standard deviation between sessions where results do not show it, a fraction
    allowed: frozenset[str] = frozenset()  # fields that may differ although they make results incompatible
    unmatched: tuple[str, ...] = ()  # published figures that no result is the counterpart of, and why
    anonymous: bool = False  # whether names of files and other texts are labels
    prices: Mapping[str, Any] = field(default_factory=dict)  # as in sifmark.toml; empty without

    def __post_init__(self) -> None:
        self._comparisons: dict[str, Comparison] = {}
        self._points: dict[str, dict[SectionKey, list[Point]]] = {}
        self._by_id = {each.observation.id: each for each in self.members}

    def compare(self, metric: str) -> Comparison:
        """Return what `compare --metrics METRIC`, with the baseline, makes of all results."""
        if metric not in self._comparisons:
            named = {metric, THROUGHPUT, *self.metrics}
            query = Query(
                metrics=tuple(sorted(named.difference(self._comparisons))),
                more_fields=(self.by,),
                allowed=self.allowed,
                baseline=self._baseline,
                against=bool(self.references),
                between=self.between,
            )
            observations = [*(each.observation for each in self.members), *self.references]
            self._comparisons |= compare_each(observations, query)
        return self._comparisons[metric]

    def points(self, metric: str) -> Mapping[SectionKey, Sequence[Point]]:
        """Return the points of a metric by section, made once: every table and chart asks for some."""
        if metric not in self._points:
            points: dict[SectionKey, list[Point]] = defaultdict(list)
            for table in self.compare(metric).tables:
                key = section_of(table.rows[0].observations[0])
                points[key] += [
                    Point(self.system(row.fields), row, metric, table.units[metric], self.of_row(row))
                    for row in table.rows
                    if row.side == OURS
                ]
            self._points[metric] = points
        return self._points[metric]

    @property
    def _baseline(self) -> tuple[str, str] | None:
        relative = self.baseline and len(self.systems) > 1 and not self.references
        return (self.by, self.baseline) if relative else None

    @property
    def divisor(self) -> str:
        """What the systems are divided by: one of them, or other results; empty without ratios."""
        return self.reference_name or (self.systems[0] if self._baseline else "")

    def system(self, fields: Mapping[str, Any]) -> str:
        """Return the name of a system: the value of a field, with that of the field before a number."""
        value = fields.get(self.by)
        if isinstance(value, int | float):
            return f"{column_of(self.by).replace('_', ' ')} {format_value(value)}"
        return UNKNOWN if value is None else str(value)

    def value_of(self, system: str) -> str:
        """Return the value of the field that names a system, as a query has it."""
        return self._values[system]

    @cached_property
    def _values(self) -> dict[str, str]:
        fields = (each.observation.fields for each in self.members)
        return {self.system(each): str(each.get(self.by)) for each in fields}

    def of_row(self, row: RepeatGroup) -> tuple[ReportResult, ...]:
        return tuple(self._by_id[each.id] for each in row.observations)

    def with_ids(self, ids: Collection[str]) -> tuple[ReportResult, ...]:
        return tuple(each for each in self.members if each.observation.id in ids)

    @cached_property
    def systems(self) -> tuple[str, ...]:
        """The names of the systems in the order of columns and colours: the baseline first, and 8 before 16."""
        return tuple(sorted(self._values, key=lambda name: (self.value_of(name) != self.baseline, _natural(name))))

    @cached_property
    def by_section(self) -> Mapping[SectionKey, Sequence[ReportResult]]:
        results: dict[SectionKey, list[ReportResult]] = defaultdict(list)
        for each in self.members:
            results[section_of(each.observation)].append(each)
        return dict(results)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The sections, by the title of the workload, task and data."""
        sections = (
            Section(key, each[0].observation.title, each[0].document["workload"]["unit"], self)
            for key, each in self.by_section.items()
        )
        return tuple(sorted(sections, key=lambda section: (section.title, section.key)))

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        names = (
            name
            for each in self.members
            for name, number in each.observation.numbers.items()
            if number.value is not None
        )
        return tuple(sorted(set(names)))

    @cached_property
    def failures(self) -> tuple[Failure, ...]:
        return tuple(
            Failure(self.system(each.observation.fields), each, fields)
            for each in self.members
            if (fields := tuple(name for name in exclusion_fields(each.observation) if name not in self.allowed))
        )

    @property
    def measured(self) -> int:
        return len(self.members) - len(self.failures)

    @cached_property
    def days(self) -> tuple[str, str]:
        """The days of the first and of the last run, in UTC."""
        days = [each.document["started"][:10] for each in self.members]
        return min(days), max(days)

    @cached_property
    def images(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The recipes of images, and the versions of sifmark that they have."""
        images = [image for each in self.members if (image := each.document["provenance"]["image"])]
        recipes, versions = ({image[name] for image in images} for name in ("recipe", "version"))
        return tuple(sorted(recipes)), tuple(sorted(versions))

    @property
    def problems(self) -> tuple[str, ...]:
        """The documents that are no results: file and reason."""
        return (*self.invalid, *self.unsigned)

    @property
    def excluded(self) -> list[Excluded]:
        return self.compare(THROUGHPUT).excluded

    @cached_property
    def overridden(self) -> tuple[Incompatibility, ...]:
        """What it would refuse, had the fields not been allowed to differ, each group and field once."""
        tables = [table for metric in self.metrics for table in self.compare(metric).tables]
        return tuple({(each.group, each.field): each for table in tables for each in table.allowed}.values())

    @cached_property
    def refused(self) -> tuple[Incompatibility, ...]:
        """What `compare` refuses of any metric, each group and field once."""
        every = (each for metric in self.metrics for each in self.compare(metric).refused)
        return tuple({(each.group, each.field): each for each in every}.values())


def _natural(name: str) -> list[str | int]:
    """Return by what names are in order, with numbers in them by their size; text and numbers take turns."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", name)]


def section_of(observation: Observation) -> SectionKey:
    group = observation.group
    return SectionKey(group.identity, group.task, group.source)
