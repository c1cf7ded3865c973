"""The baseline of each row: the row with the same configuration, on whatever platform it was measured."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

from sifmark.results.catalogue import column_of
from sifmark.results.comparison.compatibility import FIELDS
from sifmark.results.comparison.observation import PLATFORM, PRECISION, PRECISION_KIND, SETTING
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup, varying_fields
from sifmark.results.comparison.sessions import ratio

MOST_DIFFERING = 3  # settings named of the nearest baseline
Values = tuple[Any, ...]  # the values of some fields


class Candidates:
    """Baselines with the settings of some rows, by the fields in which they differ: rows may be thousands."""

    def __init__(self, baselines: Sequence[RepeatGroup], may_differ: set[str]) -> None:
        self.differing = varying_fields(baselines)
        decisive = [name for name in self.differing if name not in may_differ]
        self.by_values = [(names, _grouped(baselines, names)) for names in (self.differing, decisive)]

    def choose(self, row: RepeatGroup) -> tuple[RepeatGroup | None, str | None]:
        """Return the only one that equals a row in all fields, or in those that must not differ, else the reason."""
        for names, groups in self.by_values:
            equal = groups.get(_values(row, names), [])
            if len(equal) == 1:
                return equal[0], None
        return None, f"several baselines, which differ in {', '.join(map(column_of, self.differing))}"


def fields_that_may_differ(query: Query) -> set[str]:
    """Return the settings in which a row may differ from its baseline, besides its platform."""
    asked = {query.baseline[0]} if query.baseline else set()
    may_differ = set(query.allowed) | set(FIELDS) | asked
    return may_differ | {PRECISION_KIND} if PRECISION in may_differ else may_differ


def set_baselines(rows: Sequence[RepeatGroup], varying: Iterable[str], query: Query) -> None:
    """Give each row its baseline and its ratios, or the reason why it has none.

    `varying` are the fields in which the rows differ.
    """
    may_differ = fields_that_may_differ(query)
    names = [name for name in varying if name.startswith(SETTING) and name not in may_differ.union(PLATFORM)]
    baselines = [row for row in rows if query.is_baseline(row)]
    candidates = {values: Candidates(group, may_differ) for values, group in _grouped(baselines, names).items()}
    unmatched = []
    for row in rows:
        if query.is_baseline(row):
            continue
        if matching := candidates.get(_values(row, names)):
            row.baseline, row.no_baseline = matching.choose(row)
        else:
            unmatched.append(row)
            row.no_baseline = (
                f"no baseline has the same configuration; each differs in more than {MOST_DIFFERING} settings"
                if baselines
                else "no baseline has the same workload, task, phase and data source"
            )
        _set_ratios(row, query)
    for row, differing in _nearest(unmatched, baselines, names) if baselines else ():
        nearest = f"the nearest differs in {', '.join(map(column_of, differing))} (--allow FIELD)"
        row.no_baseline = f"no baseline has the same configuration; {nearest}"


def _set_ratios(row: RepeatGroup, query: Query) -> None:
    if row.baseline is not None:
        baseline = row.baseline
        row.ratios = {name: ratio(row, baseline, name, query.between, query.allowed) for name in query.metrics}


def _nearest(
    unmatched: Sequence[RepeatGroup], baselines: Sequence[RepeatGroup], names: Sequence[str]
) -> Iterator[tuple[RepeatGroup, tuple[str, ...]]]:
    """Yield each row with the fewest names in which a baseline differs from it, MOST_DIFFERING at most.

    This never looks at all pairs: rows may be thousands. Nor at all sets of names, whose number doubles with each.
    """
    for count in range(1, min(len(names), MOST_DIFFERING) + 1):
        for differing in combinations(names, count):
            if not unmatched:
                return
            rest = [name for name in names if name not in differing]
            values = {_values(baseline, rest) for baseline in baselines}
            yield from ((row, differing) for row in unmatched if _values(row, rest) in values)
            unmatched = [row for row in unmatched if _values(row, rest) not in values]


def _grouped(rows: Iterable[RepeatGroup], names: Sequence[str]) -> dict[Values, list[RepeatGroup]]:
    groups: dict[Values, list[RepeatGroup]] = defaultdict(list)
    for row in rows:
        groups[_values(row, names)].append(row)
    return groups


def _values(row: RepeatGroup, names: Iterable[str]) -> Values:
    return tuple(map(row.fields.get, names))
