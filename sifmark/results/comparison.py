"""Groups of results, their lines of repeats, and each line against its baseline."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

from sifmark.results.compatibility import (
    FIELDS,
    Excluded,
    Incompatibility,
    exclusion_fields,
    incompatibilities,
    unit_field,
)
from sifmark.results.intervals import Mean, Ratio, mean, ratio
from sifmark.results.observation import PLATFORM, SETTING, ComparisonGroup, Observation

RATE = "throughput"  # what scales with devices
DEVICES = "accelerator.count"
BATCH = "configuration.batch_size"
STEPS = "configuration.steps"
EPOCHS = "configuration.epochs"
# These follow the number of devices; so do the steps of an epoch.
_WITH_DEVICES = {DEVICES, BATCH, "accelerator.ranks", "accelerator.replicas", "configuration.steps_per_epoch"}

Fields = dict[str, Any]
Setting = tuple[Any, ...]  # the values of some fields


@dataclass(frozen=True)
class Query:
    """What is asked of the results."""

    metrics: tuple[str, ...]
    allowed: frozenset[str] = frozenset()
    against: bool = False  # baselines are the lines of the other side
    baseline: tuple[str, str] | None = None  # or those with this field and value

    @property
    def relative(self) -> bool:
        """Whether ratios are asked for."""
        return self.against or self.baseline is not None

    def is_baseline(self, one: "RepeatGroup | Observation") -> bool:
        """Whether it is what others are divided by."""
        if self.baseline is None:
            return one.side == "against"
        name, wanted = self.baseline
        return _matches(one.fields.get(name), wanted)


@dataclass
class RepeatGroup:
    """Repeats: results that differ in nothing that is known to matter."""

    side: str
    fields: Fields
    found: list[Observation]
    means: dict[str, Mean] = field(default_factory=dict)
    ratios: dict[str, Ratio] = field(default_factory=dict)
    baseline: "RepeatGroup | None" = None
    no_baseline: str | None = None  # why there is none, where one was asked for
    scaling: "Scaling | None" = None

    def values(self, metric: str) -> list[float]:
        """What its repeats measured."""
        numbers = (one.numbers.get(metric) for one in self.found)
        return [number.value for number in numbers if number is not None and number.value is not None]

    @property
    def unsteady(self) -> list[str]:
        """The files of those that were shown not to be steady."""
        return [one.file for one in self.found if one.unsteady]

    def absent(self, metric: str) -> str | None:
        """Why a repeat has no value."""
        numbers = (one.numbers.get(metric) for one in self.found)
        return next((number.reason for number in numbers if number is not None and number.reason), None)


@dataclass(frozen=True)
class Scaling:
    """Throughput per device over that of the line with the fewest devices."""

    kind: str  # strong: the batch stays; weak: the batch per device stays
    devices: int  # of that line
    efficiency: Ratio


@dataclass(frozen=True)
class ComparisonTable:
    """A group that compares, perhaps because the user allowed what stands in `allowed`."""

    group: ComparisonGroup
    title: str
    lines: list[RepeatGroup]
    units: dict[str, str]
    allowed: list[Incompatibility]

    @cached_property
    def scales(self) -> bool:
        """Whether lines differ in the number of devices alone."""
        return any(line.scaling for line in self.lines)


@dataclass(frozen=True)
class Comparison:
    """What can be compared, and what cannot."""

    question: Query
    tables: list[ComparisonTable]
    refused: list[Incompatibility]
    left_out: list[Excluded]

    @property
    def judged(self) -> list[RepeatGroup]:
        """The lines that are asked about: all but the baselines."""
        lines = [line for table in self.tables for line in table.lines]
        return [line for line in lines if not (self.question.relative and self.question.is_baseline(line))]


def compare_observations(observations: Iterable[Observation], question: Query) -> Comparison:
    """Results by group, without the unfit: tables of groups that compare, findings for the others."""
    groups: dict[ComparisonGroup, list[Observation]] = defaultdict(list)
    left_out = []
    for one in observations:
        if barred := tuple(field for field in exclusion_fields(one) if field not in question.allowed):
            left_out.append(Excluded(one, barred))
        else:
            groups[one.group].append(one)
    tables, refused = [], []
    for group, found in sorted(groups.items()):
        problems = list(incompatibilities(group, found, question.metrics))
        if stopped := [problem for problem in problems if problem.field not in question.allowed]:
            refused += stopped
        else:
            tables.append(
                ComparisonTable(group, found[0].title, _lines(found, question), _units(found, question), problems)
            )
    return Comparison(question, tables, refused, left_out)


def varying_fields(lines: Sequence[RepeatGroup]) -> list[str]:
    """The fields in which lines differ, in order of name."""
    seen: dict[str, list[Any]] = defaultdict(list)
    for line in lines:
        for name, value in line.fields.items():
            seen[name].append(value)
    return sorted(name for name, values in seen.items() if len(set(values)) > 1 or len(values) < len(lines))


def _lines(found: Sequence[Observation], question: Query) -> list[RepeatGroup]:
    # Where a metric may have several units they are fields too, so that no mean is of two.
    units = {unit_field(name): name for name in question.metrics if unit_field(name) in question.allowed}
    cells: dict[Any, RepeatGroup] = {}
    for one in found:
        told = {field: one.numbers[name].unit for field, name in units.items() if name in one.numbers}
        fields = one.fields | told if told else one.fields
        key = one.side, frozenset(fields.items())
        if key not in cells:
            cells[key] = RepeatGroup(one.side, fields, [])
        cells[key].found.append(one)
    lines = list(cells.values())
    for line in lines:
        line.means = {name: mean(line.values(name), line.absent(name)) for name in question.metrics}
    shown = varying_fields(lines)
    if question.relative:
        _set_baselines(lines, shown, question)
    _set_scaling(lines)
    return sorted(lines, key=lambda line: (line.side, [_order(line.fields.get(name)) for name in shown]))


def _set_baselines(lines: Sequence[RepeatGroup], shown: Iterable[str], question: Query) -> None:
    """Give each line its baseline and ratios, or the reason. `shown` are the fields in which lines differ."""
    moving = set(question.allowed) | set(FIELDS) | ({question.baseline[0]} if question.baseline else set())
    names = [name for name in shown if name.startswith(SETTING) and name not in moving.union(PLATFORM)]
    bases = [line for line in lines if question.is_baseline(line)]
    candidates: dict[Setting, list[RepeatGroup]] = defaultdict(list)
    for base in bases:
        candidates[_setting(base, names)].append(base)
    lost = []
    for line in lines:
        if question.is_baseline(line):
            continue
        if near := candidates.get(_setting(line, names)):
            line.baseline, line.no_baseline = _choose(line, near, moving)
        else:
            lost.append(line)
            line.no_baseline = "no baseline has the same workload, task, phase and data source"
        if line.baseline is not None:
            below = line.baseline
            line.ratios = {name: ratio(line.values(name), below.values(name)) for name in question.metrics}
    for line, apart in _nearest(lost, bases, names) if bases else ():
        differs = f"the nearest differs in {', '.join(apart)} (--allow FIELD)"
        line.no_baseline = f"no baseline has the same configuration; {differs}"


def _nearest(
    lost: Sequence[RepeatGroup], bases: Sequence[RepeatGroup], names: Sequence[str]
) -> Iterator[tuple[RepeatGroup, tuple[str, ...]]]:
    """Each line with the fewest names in which a baseline differs from it. Never all pairs: lines may be thousands."""
    for count in range(1, len(names) + 1):
        for apart in combinations(names, count):
            if not lost:
                return
            rest = [name for name in names if name not in apart]
            known = {_setting(base, rest) for base in bases}
            yield from ((line, apart) for line in lost if _setting(line, rest) in known)
            lost = [line for line in lost if _setting(line, rest) not in known]


def _choose(
    line: RepeatGroup, candidates: Sequence[RepeatGroup], moving: set[str]
) -> tuple[RepeatGroup | None, str | None]:
    """Of several candidates the one that is as the line is in all that tells them apart, or in what must not move."""
    apart = set(varying_fields(candidates))
    for names in (apart, apart - moving):
        near = [one for one in candidates if _same(line, one, names)]
        if len(near) == 1:
            return near[0], None
    return None, f"several baselines, which differ in {', '.join(sorted(apart))}"


def _same(line: RepeatGroup, other: RepeatGroup, names: Iterable[str]) -> bool:
    return all(line.fields.get(name) == other.fields.get(name) for name in names)


def _setting(line: RepeatGroup, names: Iterable[str]) -> Setting:
    return tuple(map(line.fields.get, names))


def _set_scaling(lines: Sequence[RepeatGroup]) -> None:
    """Efficiency within each series of lines that differ in the number of devices and in what follows from it."""
    series: dict[Any, list[RepeatGroup]] = defaultdict(list)
    for line in lines:
        devices, batch = line.fields.get(DEVICES), line.fields.get(BATCH)
        if isinstance(devices, int) and isinstance(batch, int):
            follows = _WITH_DEVICES | ({STEPS} if line.fields.get(EPOCHS) is not None else set())
            rest = frozenset(item for item in line.fields.items() if item[0] not in follows)
            series[line.side, rest, "strong", batch].append(line)
            series[line.side, rest, "weak", batch / devices].append(line)
    for (_, _, kind, _), members in series.items():
        first = min(members, key=lambda line: line.fields[DEVICES])
        counts = [line.fields[DEVICES] for line in members]
        if len(counts) > 1 and len(set(counts)) == len(counts):
            for line in members:
                if line is not first:
                    line.scaling = _scaling(kind, line, first)


def _scaling(kind: str, line: RepeatGroup, first: RepeatGroup) -> Scaling:
    times = ratio(line.values(RATE), first.values(RATE))
    return Scaling(kind, first.fields[DEVICES], times.over(line.fields[DEVICES] / first.fields[DEVICES]))


def _units(found: Sequence[Observation], question: Query) -> dict[str, str]:
    """The unit of each metric: where units were allowed to differ, all of them."""
    units: dict[str, str] = {}
    for name in question.metrics:
        numbers = [one.numbers[name] for one in found if name in one.numbers]
        measured = [number.unit for number in numbers if number.value is not None] or [n.unit for n in numbers]
        units[name] = " or ".join(dict.fromkeys(measured)) or "-"
    return units


def _order(value: Any) -> Any:
    return (0, value, "") if isinstance(value, int | float) else (1, 0, str(value))


def _matches(value: Any, wanted: str) -> bool:
    return value is not None and wanted in (str(value), str(value).lower())
