"""Comparing results: groups, rows of repeats, and each row against its baseline."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sifmark.results.comparison.baselines import set_baselines
from sifmark.results.comparison.collection import Measure, ResultCollection, load_observations
from sifmark.results.comparison.compatibility import (
    Excluded,
    Incompatibility,
    exclusion_fields,
    incompatibilities,
    unit_field,
)
from sifmark.results.comparison.observation import ComparisonGroup, Observation
from sifmark.results.comparison.query import Query, default_metrics
from sifmark.results.comparison.repeats import RepeatGroup, Scaling, varying_fields
from sifmark.results.comparison.scaling import set_scaling
from sifmark.results.comparison.sessions import mean


@dataclass(frozen=True)
class ComparisonTable:
    """A group that can be compared, perhaps because the user allowed the fields in `allowed` to differ."""

    group: ComparisonGroup
    title: str
    rows: list[RepeatGroup]
    units: dict[str, str]  # of each metric that was compared
    allowed: list[Incompatibility]
    shown: tuple[str, ...] = ()  # the metrics to print, the most important one first; all of them if empty

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics to print."""
        return self.shown or tuple(self.units)

    def compared(self, query: Query) -> list[RepeatGroup]:
        """Return the rows in question: all but the baselines."""
        return [row for row in self.rows if not (query.relative and query.is_baseline(row))]

    def unmatched_baselines(self, query: Query) -> list[RepeatGroup]:
        """Return the baselines that no other row is compared with."""
        paired = {id(row.baseline) for row in self.rows if row.baseline}
        return [row for row in self.rows if query.relative and query.is_baseline(row) and id(row) not in paired]

    @cached_property
    def scalings(self) -> list[tuple[RepeatGroup, Scaling]]:
        """The rows that differ from another only in the number of devices, with their scaling, by its kind."""
        pairs = [(row, scaling) for row in self.rows for scaling in row.scalings]
        return sorted(pairs, key=lambda pair: pair[1].kind)


@dataclass(frozen=True)
class Comparison:
    """What can be compared, and what cannot."""

    query: Query  # with the metrics that were compared
    tables: list[ComparisonTable]
    refused: list[Incompatibility]
    excluded: list[Excluded]
    units: dict[str, str] = field(default_factory=dict)  # the first unit of each metric, in compared results or others
    invalid: list[str] = field(default_factory=list)  # documents that are not valid: file and first problem
    unsigned: list[str] = field(default_factory=list)  # documents that no trusted key has signed, if signatures count
    duplicates: int = 0  # copies of results, which were counted once

    @property
    def unmatched_baselines(self) -> list[RepeatGroup]:
        """The baselines that no other row was compared with: what was measured then, and is missing now."""
        return [row for table in self.tables for row in table.unmatched_baselines(self.query)]

    @property
    def compared(self) -> list[RepeatGroup]:
        """The rows in question: all but the baselines."""
        return [row for table in self.tables for row in table.compared(self.query)]


def compare_results(
    paths: Iterable[str],
    query: Query,
    against: str = "",
    trusted_keys: Sequence[str] | None = None,
    baselines: Iterable[Observation] = (),
    measure: Measure | None = None,
) -> Comparison:
    """Compare the results of files, folders or globs, with those at `against` as baselines if it is given.

    With `trusted_keys` only results that one of them has signed are compared. `baselines` are further ones. `measure`
    gives observations more numbers than their metrics.

    Raises UsageError if the query names a field, metric or baseline that no result has.
    """
    collection = load_observations(paths, query, against, trusted_keys, measure)
    collection.add_baselines(baselines)
    return compare_collection(collection, query)


def compare_collection(collection: ResultCollection, query: Query) -> Comparison:
    """Compare results that are loaded.

    Raises UsageError if the query names a field, metric or baseline that no result has.
    """
    collection.require_names(query)
    if query.every_metric:
        query = replace(query, metrics=tuple(sorted(collection.metrics)))
    return replace(
        compare_observations(collection.observations, query),
        units=_first_units(collection, query.metrics),
        invalid=collection.invalid,
        unsigned=collection.unsigned,
        duplicates=collection.duplicates,
    )


def compare_observations(observations: Iterable[Observation], query: Query) -> Comparison:
    """Compare results by group: a table for each group that can be compared, and the reasons for the others."""
    groups: dict[ComparisonGroup, list[Observation]] = defaultdict(list)
    excluded = []
    for observation in observations:
        if fields := tuple(name for name in exclusion_fields(observation) if name not in query.allowed):
            excluded.append(Excluded(observation, fields))
        else:
            groups[observation.group].append(observation)
    tables: list[ComparisonTable] = []
    refused: list[Incompatibility] = []
    for group, members in sorted(groups.items()):
        shown = default_metrics(members) if query.by_default else query.metrics
        metrics = tuple(dict.fromkeys((*shown, *query.metrics[:1])))  # the first is what a gate judges
        problems = list(incompatibilities(group, members, metrics))
        if forbidden := [problem for problem in problems if problem.field not in query.allowed]:
            refused += forbidden
        else:
            rows, units = _rows(members, replace(query, metrics=metrics)), _units(members, metrics)
            tables.append(ComparisonTable(group, members[0].title, rows, units, problems, shown))
    return Comparison(query, tables, refused, excluded)


def compare_each(observations: Sequence[Observation], query: Query) -> dict[str, Comparison]:
    """Compare by each metric of a query alone, so that mixed meters refuse energy and not throughput.

    A group of which nothing is refused has the same rows whatever the metric, and is compared once.
    """
    if query.allowed:  # what is allowed to differ depends on the metric
        return {name: compare_observations(observations, replace(query, metrics=(name,))) for name in query.metrics}
    together = compare_observations(observations, query)
    refused = {each.group for each in together.refused}
    others = [each for each in observations if each.group in refused]
    return {name: _of_metric(together, others, name) for name in query.metrics}


def _of_metric(together: Comparison, others: Sequence[Observation], name: str) -> Comparison:
    """Return a metric's part of a comparison, with what others, which are refused there, are by it alone."""
    query = replace(together.query, metrics=(name,))
    alone = compare_observations(others, query)
    tables = [replace(table, units={name: table.units[name]}, shown=(name,)) for table in together.tables]
    tables = sorted([*tables, *alone.tables], key=lambda table: table.group)
    return Comparison(query, tables, alone.refused, together.excluded)


def _rows(observations: Sequence[Observation], query: Query) -> list[RepeatGroup]:
    rows = repeat_groups(observations, query)
    for row in rows:
        row.means = {name: mean(row, name) for name in query.metrics}
    varying = varying_fields(rows)
    if query.relative:
        set_baselines(rows, varying, query)
    set_scaling(rows)
    return sorted(rows, key=lambda row: (row.side, [sort_key(row.fields.get(name)) for name in varying]))


def repeat_groups(observations: Sequence[Observation], query: Query) -> list[RepeatGroup]:
    """Return the observations by equal fields. A metric's unit is a field too if several are allowed."""
    unit_fields = {unit_field(name): name for name in query.metrics if unit_field(name) in query.allowed}
    rows: dict[Any, RepeatGroup] = {}
    for observation in observations:
        numbers = observation.numbers
        units = {field: numbers[name].unit for field, name in unit_fields.items() if name in numbers}
        fields = observation.fields | units if units else observation.fields
        key = observation.side, frozenset(fields.items())
        if key not in rows:
            rows[key] = RepeatGroup(observation.side, fields, [])
        rows[key].observations.append(observation)
    return list(rows.values())


def _units(observations: Sequence[Observation], metrics: Iterable[str]) -> dict[str, str]:
    """Return the unit of each metric; if units were allowed to differ, all of them."""
    units: dict[str, str] = {}
    for name in metrics:
        numbers = [observation.numbers[name] for observation in observations if name in observation.numbers]
        measured = [number.unit for number in numbers if number.value is not None] or [n.unit for n in numbers]
        units[name] = " or ".join(dict.fromkeys(measured)) or "-"
    return units


def _first_units(collection: ResultCollection, metrics: Iterable[str]) -> dict[str, str]:
    units: dict[str, str] = {}
    for observation in collection.observations:
        for name in metrics:
            if name in observation.numbers:
                units.setdefault(name, observation.numbers[name].unit)
    return units


def sort_key(value: Any) -> Any:
    """Return by what the values of a field are in order: numbers first."""
    return (0, value, "") if isinstance(value, int | float) else (1, 0, str(value))
