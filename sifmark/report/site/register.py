"""The rankings of a register: systems in one configuration, as far as `compare` shows that one is ahead of another.

Results that `compare` refuses together are ranked apart from each other, each kind among its own. A rank is a range:
the first place that the verdicts leave a system, and the last.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sifmark.report.results import Point
from sifmark.report.site.read import SiteResult
from sifmark.report.site.rows import SeriesRow, newest_rows, report_results
from sifmark.report.workloads import MORE, Workload, ranked, workloads_of
from sifmark.results.catalogue import KINDS, column_of, rates
from sifmark.results.comparison.compatibility import (
    DECISIVE,
    Incompatibility,
    exclusion_fields,
    format_value,
    incompatibilities,
    unit_field,
)
from sifmark.results.comparison.observation import PLATFORM, SETTING, ComparisonGroup, Observation
from sifmark.results.comparison.scaling import DEVICES, THROUGHPUT
from sifmark.results.comparison.sessions import ratio
from sifmark.results.comparison.tables import ratio_text

_RATES = tuple(dict.fromkeys((THROUGHPUT, *rates(*KINDS))))


@dataclass(frozen=True)
class Ranked:
    """A system in a ranking: its rank, or why it has none."""

    row: SeriesRow
    rank: str  # `1`, or `2 to 3` where no difference is shown; empty without one
    compared: str  # with the first, in words; empty of the first
    reason: str = ""


@dataclass(frozen=True)
class Ranking:
    """Systems that measured one configuration of a workload, the best first, and then those without a rank."""

    workload: str
    task: str
    settings: str
    kind: str  # what these results have in common and others, which are ranked apart, have not
    apart: tuple[str, ...]  # why those are not ranked with these
    systems: tuple[Ranked, ...]


def rankings_of(members: Iterable[SiteResult], by: str) -> tuple[Ranking, ...]:
    """Return the rankings of some results, each with two systems or more. `by` is the field that names systems."""
    groups: dict[ComparisonGroup, list[SiteResult]] = defaultdict(list)
    for each in members:
        if not exclusion_fields(each.observation):
            groups[each.observation.group].append(each)
    return tuple(ranking for _, group in sorted(groups.items()) for ranking in _of_group(group, by))


def _of_group(members: Sequence[SiteResult], by: str) -> Iterator[Ranking]:
    problems = _problems([each.observation for each in members])
    for alike in _alike(members):
        kind = ", ".join(_value_text(alike[0].observation, problem) for problem in problems)
        apart = tuple(problem.difference for problem in problems)
        for workload in ranked(workloads_of(report_results(alike, by))):
            for pairs in _by_configuration(workload):
                ordered = tuple(_ranked(pairs))
                row = ordered[0].row
                yield Ranking(row.workload, workload.task, row.settings, kind, apart, ordered)


def _problems(observations: Sequence[Observation]) -> list[Incompatibility]:
    """Return what keeps observations of one group from being ranked together."""
    return list(incompatibilities(observations[0].group, observations, _RATES))


def _alike(members: Sequence[SiteResult]) -> list[list[SiteResult]]:
    """Return the results of a group by what `compare` takes together, the largest part first."""
    kinds: dict[Hashable, list[SiteResult]] = defaultdict(list)
    for each in members:
        kinds[_decisive(each.observation)].append(each)
    parts: list[list[SiteResult]] = []
    examples: list[list[Observation]] = []  # of each part one of each kind: results may be thousands
    for kind in sorted(kinds.values(), key=lambda each: (-len(each), each[0].id)):
        example = kind[0].observation
        place = next((n for n, others in enumerate(examples) if not _problems([*others, example])), len(parts))
        if place == len(parts):
            parts.append([])
            examples.append([])
        parts[place] += kind
        examples[place].append(example)
    return parts


def _decisive(observation: Observation) -> Hashable:
    units = ((name, number.unit) for name in _RATES if (number := observation.numbers.get(name)) and number.value)
    return tuple(map(observation.fields.get, DECISIVE)), tuple(units)


def _value_text(observation: Observation, problem: Incompatibility) -> str:
    """Return what of a difference a result has: `stand_in true`."""
    units = {unit_field(name): number.unit for name, number in observation.numbers.items()}
    value = units.get(problem.field, observation.fields.get(problem.field))
    return f"{column_of(problem.field)} {format_value(value)}"


def _by_configuration(workload: Workload) -> Iterator[list[tuple[Point, SeriesRow]]]:
    """Yield the newest rows of each configuration that two systems or more have, on as many devices."""
    found: dict[Hashable, list[tuple[Point, SeriesRow]]] = defaultdict(list)
    for point, row in newest_rows(workload):
        found[_configuration(point.fields)].append((point, row))
    yield from (pairs for pairs in found.values() if len(pairs) > 1)


def _configuration(fields: Mapping[str, Any]) -> Hashable:
    settings = {name: value for name, value in fields.items() if name.startswith(SETTING) and name not in PLATFORM}
    return frozenset({**settings, DEVICES: fields.get(DEVICES)}.items())


def _ranked(pairs: Sequence[tuple[Point, SeriesRow]]) -> Iterator[Ranked]:
    """Yield systems by what they measured, with the places that verdicts leave them; then those without a verdict."""
    ordered = sorted(pairs, key=lambda pair: (-pair[0].value, pair[1].ids))
    doubts = {row.ids: _doubt(point) for point, row in ordered}
    judged = [pair for pair in ordered if not doubts[pair[1].ids]]
    ahead = {row.ids: 0 for _, row in judged}
    behind = dict(ahead)
    for place, (point, row) in enumerate(judged):
        for other, lower in judged[place + 1 :]:
            if ratio(point.row, other.row, point.metric).verdict == MORE:
                behind[row.ids] += 1
                ahead[lower.ids] += 1
    for point, row in judged:
        first, last = 1 + ahead[row.ids], len(judged) - behind[row.ids]
        best = judged[0][0]
        compared = "" if point is best else ratio_text(ratio(point.row, best.row, point.metric), point.unit)
        yield Ranked(row, str(first) if first == last else f"{first} to {last}", compared)
    yield from (Ranked(row, "", "", doubts[row.ids]) for _, row in ordered if doubts[row.ids])


def _doubt(point: Point) -> str:
    """Return why nothing follows from a point, whatever it is compared with; empty if something may."""
    return point.mean.reason or ratio(point.row, point.row, point.metric).withheld
