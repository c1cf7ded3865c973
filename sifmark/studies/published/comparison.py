"""Published figures beside results: each figure with the results that are its counterpart, or why there are none."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sifmark.core.errors import SifmarkError, unknown_name
from sifmark.results.comparison.intervals import Mean, Ratio, mean, ratio
from sifmark.studies.published.figures import OUT_OF_MEMORY, Bound, Figure, PublishedStudy, PublishedTable
from sifmark.studies.published.listing import reference_text
from sifmark.studies.published.load import select_tables
from sifmark.studies.published.matching import (
    NOT_COMPARABLE,
    ConditionDifference,
    allowable_names,
    best_of,
    decides,
    denominators,
    differences,
    is_candidate,
    is_within,
    not_printed,
)
from sifmark.studies.published.measured import (
    FIELD_OF,
    MeasuredGroup,
    MeasuredResults,
    exclusion_names,
    load_measured,
)


class Reason(StrEnum):
    """Why a figure has no counterpart."""

    NO_FIELD = "no field of a result is the same"
    NO_RESULTS = "no results of this workload and task"
    NO_VALUE = "the results have no such value"
    DIFFERS = "the nearest results differ"
    REFUSED = "must not be compared"
    NO_REFERENCE = "no results to divide by"


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A figure and the results that are its counterpart."""

    figure: Figure
    group: MeasuredGroup
    divided_by: MeasuredGroup | None  # of a ratio
    measured: Mean  # in the figure's unit; without a value if the results ran out of memory
    ratio: Ratio | None  # measured over published; of a range, over its nearer end; None inside of it
    differs: tuple[ConditionDifference, ...]  # what differs, although it need not or because the user allowed it
    missing: tuple[ConditionDifference, ...]  # what the document does not print

    @property
    def verdict(self) -> str:
        """How measured and published compare, apart from the ratio."""
        figure, value = self.figure, self.measured.value
        if figure.state or self.group.state == OUT_OF_MEMORY:
            published = figure.state or "completed"
            return "as published" if published == self.group.state else "differs from what is published"
        if value is None or figure.low is None or figure.high is None:
            return ""
        if figure.bound is Bound.RANGE and figure.low <= value <= figure.high:
            return "within the published range"
        if figure.bound is Bound.AT_LEAST and value >= figure.low:
            return "as published: at least"
        return "as published: at most" if figure.bound is Bound.AT_MOST and value <= figure.high else ""


@dataclass(frozen=True, slots=True)
class UnmatchedFigure:
    """A figure without a counterpart."""

    figure: Figure
    reason: Reason
    detail: str
    differs: tuple[ConditionDifference, ...] = ()  # of the nearest results


@dataclass(frozen=True)
class PublishedComparison:
    """All figures of a study, or of one of its tables, beside results."""

    study: PublishedStudy
    tables: tuple[PublishedTable, ...]
    rows: tuple[PublishedRow, ...]
    unmatched: tuple[UnmatchedFigure, ...]
    results: MeasuredResults


def compare_with_published(
    name: str,
    paths: Iterable[str],
    allowed: Iterable[str] = (),
    metrics: Sequence[str] = (),
    trusted_keys: Sequence[str] | None = None,
) -> PublishedComparison:
    """Compare results with the figures of NAME or NAME/TABLE, with those of `metrics` if there are any.

    `allowed` are conditions that may differ although they make a comparison meaningless. Raises UsageError, and
    SifmarkError for a study that is context.
    """
    study, tables = select_tables(name)
    if study.context:
        remedy = f"print it: sifmark published.show {study.name}; figures to compare with: sifmark published.list"
        raise SifmarkError(
            f"{study.name}: its figures are never compared: {study.context}", remedy, code="results-incomparable"
        )
    figures = [figure for table in tables for figure in table.figures if not metrics or figure.metric in metrics]
    names = frozenset(map(_condition_name, allowed))
    results = load_measured(paths, metrics_of(figures), study.devices, names, trusted_keys)
    rows, unmatched = match_figures(study, figures, results.groups, names)
    return PublishedComparison(study, tables, rows, unmatched, results)


def metrics_of(figures: Iterable[Figure]) -> tuple[str, ...]:
    """Return the metrics that figures are compared by."""
    names: dict[str | None, None] = {}
    for figure in figures:
        to = figure.reference
        names |= dict.fromkeys((figure.metric, figure.best, figure.within, *((to.metric, to.best) if to else ())))
    return tuple(name for name in names if name)


def match_figures(
    study: PublishedStudy,
    figures: Iterable[Figure],
    groups: Sequence[MeasuredGroup],
    allowed: frozenset[str] = frozenset(),
) -> tuple[tuple[PublishedRow, ...], tuple[UnmatchedFigure, ...]]:
    """Return a row for each figure and its counterpart among groups of results, and the figures without one."""
    matcher = _Matcher(study, groups, allowed)
    rows: list[PublishedRow] = []
    unmatched: list[UnmatchedFigure] = []
    for figure in figures:
        match matcher.match(figure):
            case UnmatchedFigure() as missing:
                unmatched.append(missing)
            case compared:
                rows += compared
    return tuple(rows), tuple(unmatched)


def _condition_name(name: str) -> str:
    """Return the condition that an option names, perhaps by its field in a result. Raises UsageError."""
    by_field = {field: condition for condition, field in FIELD_OF.items()}
    condition = by_field.get(name, by_field.get(f"configuration.{name}", name))
    names = (*allowable_names(), *exclusion_names())
    if condition not in names:
        raise unknown_name("field that can be allowed", name, names)
    return condition


class _Matcher:
    """The groups of results that figures are matched with."""

    def __init__(self, study: PublishedStudy, groups: Sequence[MeasuredGroup], allowed: frozenset[str]) -> None:
        self.study = study
        self.groups = groups
        self.allowed = allowed

    def match(self, figure: Figure) -> "list[PublishedRow] | UnmatchedFigure":
        """Return a row for each group that is the counterpart of a figure, or why there is none."""
        if figure.metric is None:
            return UnmatchedFigure(figure, Reason.NO_FIELD, figure.not_comparable or "")
        candidates = [group for group in self.groups if is_candidate(figure, group)]
        if not candidates:
            return UnmatchedFigure(figure, Reason.NO_RESULTS, _network(figure))
        if figure.not_comparable and NOT_COMPARABLE not in self.allowed:
            return UnmatchedFigure(figure, Reason.REFUSED, figure.not_comparable)
        valued = [group for group in candidates if has_value(figure, group)]
        if not valued:
            return UnmatchedFigure(figure, Reason.NO_VALUE, f"{figure.metric}: {_missing(figure, candidates[0])}")
        counterparts = self._counterparts(figure, valued)
        return counterparts if isinstance(counterparts, UnmatchedFigure) else self._rows(figure, counterparts)

    def _counterparts(self, figure: Figure, groups: Sequence[MeasuredGroup]) -> "list[MeasuredGroup] | UnmatchedFigure":
        """Return the groups with the fewest differences among those whose differences all may be or are allowed."""
        decisive = [(self._decisive(figure, group), group) for group in groups]
        fitting = [pair for pair in decisive if all(each.name in self.allowed for each in pair[0])]
        if not fitting:
            nearest = min((differing for differing, _ in decisive), key=len)
            refused = tuple(each for each in nearest if each.name not in self.allowed)
            return UnmatchedFigure(figure, Reason.DIFFERS, ", ".join(each.text for each in refused), refused)
        fewest = min(len(differing) for differing, _ in fitting)
        return [group for differing, group in fitting if len(differing) == fewest]

    def _decisive(self, figure: Figure, group: MeasuredGroup) -> list[ConditionDifference]:
        return [each for each in differences(figure, group, self.study.devices) if decides(each.name, figure)]

    def _rows(self, figure: Figure, groups: Sequence[MeasuredGroup]) -> "list[PublishedRow] | UnmatchedFigure":
        if figure.state or figure.reference is None:
            rows = [self._row(figure, group, None, _measured(figure, group)) for group in best_of(figure.best, groups)]
        else:
            pairs = [(group, below) for group in groups for below in self._below(figure, group)]
            best = best_of(figure.best, [group for group, _ in pairs])
            rows = [
                self._row(figure, group, below, _measured_ratio(figure, group, below))
                for group, below in pairs
                if any(group is each for each in best)
            ]
        if rows:
            return rows
        if figure.reference is None:
            return UnmatchedFigure(figure, Reason.NO_VALUE, f"{figure.best}: none of them has one")
        return UnmatchedFigure(figure, Reason.NO_REFERENCE, reference_text(figure.reference))

    def _below(self, figure: Figure, group: MeasuredGroup) -> Iterator[MeasuredGroup]:
        """Yield what a ratio's numerator is to be divided by."""
        reference = figure.reference
        if reference is None or group.state == OUT_OF_MEMORY:
            return
        if reference.metric is not None:
            yield group
            return
        others = denominators(reference, group, self.groups)
        best = best_of(reference.best, [other for other in others if other.row.values(str(figure.metric))])
        yield from (other for other in best if is_within(figure.within, group, other))

    def _row(self, figure: Figure, group: MeasuredGroup, below: MeasuredGroup | None, measured: Mean) -> PublishedRow:
        differs = tuple(differences(figure, group, self.study.devices))
        missing = tuple(not_printed(figure, group))
        return PublishedRow(figure, group, below, measured, _over_published(figure, measured), differs, missing)


def has_value(figure: Figure, group: MeasuredGroup) -> bool:
    """Return whether a group of the workload of a figure has a value, or a state, in its metric and unit."""
    if figure.state or group.state == OUT_OF_MEMORY:
        return figure.reference is None
    numbers = [each.numbers.get(str(figure.metric)) for each in group.row.observations]
    units = {number.unit for number in numbers if number is not None and number.value is not None}
    return bool(units) and (figure.reference is not None or units == {figure.unit})


def _missing(figure: Figure, group: MeasuredGroup) -> str:
    """Return why a group has no value that can be compared with a figure."""
    metric = str(figure.metric)
    if reason := group.row.missing_reason(metric):
        return reason
    if group.row.values(metric):
        units = {each.numbers[metric].unit for each in group.row.observations if metric in each.numbers}
        return f"its unit is {' or '.join(sorted(units))}, that of the figure {figure.unit}"
    return "not measured"


def _measured(figure: Figure, group: MeasuredGroup) -> Mean:
    if figure.state or group.state == OUT_OF_MEMORY:
        return Mean(0, None, reason=f"the run {'completed' if group.state != OUT_OF_MEMORY else 'ran out of memory'}")
    metric = str(figure.metric)
    return mean(group.row.values(metric), group.row.missing_reason(metric))


def _measured_ratio(figure: Figure, above: MeasuredGroup, below: MeasuredGroup) -> Mean:
    """Return the ratio of two groups, or of two metrics of one, as the number to compare."""
    metric = str(figure.metric)
    other = (figure.reference.metric if figure.reference else None) or metric
    numerator, denominator = above.row.values(metric), below.row.values(other)
    measured = ratio(numerator, denominator)
    return Mean(min(len(numerator), len(denominator)), measured.value, measured.low, measured.high, measured.reason)


def _over_published(figure: Figure, measured: Mean) -> Ratio | None:
    """Return what was measured over what was published; of a range, over its nearer end, and nothing inside of it."""
    low, high, value = figure.low, figure.high, measured.value
    if value is None or not low or not high or (low < high and low <= value <= high):
        return None
    end = low if value < low else high
    return Ratio(value, measured.low, measured.high, measured.reason).over(end)


def _network(figure: Figure) -> str:
    workloads, tasks = (figure.conditions.get(name, ()) for name in ("workload", "task"))
    if not workloads:
        return "a network that sifmark does not have"
    return f"{' or '.join(map(str, workloads))} {' or '.join(map(str, tasks))}"
