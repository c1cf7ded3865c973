"""Groups of results, their lines of repeats, and each line against its baseline."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sifmark.comparability import FIELDS, Finding, findings
from sifmark.observation import PLATFORM, SETTING, Group, Observation
from sifmark.spread import Mean, Ratio, mean, ratio

RATE = "throughput"  # what scales with devices
DEVICES = "accelerator.count"
BATCH = "configuration.batch_size"
# These follow the number of devices.
_WITH_DEVICES = {DEVICES, BATCH, "accelerator.ranks", "accelerator.replicas", "configuration.steps_per_epoch"}

Fields = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """What is asked of the results."""

    metrics: tuple[str, ...]
    allowed: frozenset[str] = frozenset()
    against: bool = False  # baselines are the lines of the other side
    baseline: tuple[str, str] | None = None  # or those with this field and value


@dataclass
class Line:
    """Repeats: results that differ in nothing that is known to matter."""

    side: str
    fields: Fields
    found: list[Observation]
    means: dict[str, Mean] = field(default_factory=dict)
    ratios: dict[str, Ratio] = field(default_factory=dict)
    baseline: "Line | None" = None
    no_baseline: str | None = None  # why there is none, where one was asked for
    scaling: "Scaling | None" = None

    def values(self, metric: str) -> list[float]:
        """What its repeats measured."""
        numbers = (one.numbers.get(metric) for one in self.found)
        return [number.value for number in numbers if number is not None and number.value is not None]

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
class Table:
    """A group that compares, perhaps because the user allowed what stands in `allowed`."""

    group: Group
    title: str
    lines: list[Line]
    units: dict[str, str]
    allowed: list[Finding]

    @cached_property
    def scales(self) -> bool:
        """Whether lines differ in the number of devices alone."""
        return any(line.scaling for line in self.lines)


@dataclass(frozen=True)
class Answer:
    """What can be compared, and what cannot."""

    question: Question
    tables: list[Table]
    refused: list[Finding]


def compare(observations: Iterable[Observation], question: Question) -> Answer:
    """Results by group: tables of those that compare, findings for the others."""
    groups: dict[Group, list[Observation]] = defaultdict(list)
    for one in observations:
        groups[one.group].append(one)
    tables, refused = [], []
    for group, found in sorted(groups.items()):
        problems = list(findings(group, found, question.metrics))
        if stopped := [problem for problem in problems if problem.field not in question.allowed]:
            refused += stopped
        else:
            tables.append(Table(group, found[0].title, _lines(found, question), _units(found, question), problems))
    return Answer(question, tables, refused)


def varying(lines: Sequence[Line]) -> list[str]:
    """The fields in which lines differ, in order of name."""
    seen: dict[str, list[Any]] = defaultdict(list)
    for line in lines:
        for name, value in line.fields.items():
            seen[name].append(value)
    return sorted(name for name, values in seen.items() if len(set(values)) > 1 or len(values) < len(lines))


def _lines(found: Sequence[Observation], question: Question) -> list[Line]:
    cells: dict[Any, list[Observation]] = defaultdict(list)
    for one in found:
        cells[one.side, frozenset(one.fields.items())].append(one)
    lines = [Line(same[0].side, same[0].fields, same) for same in cells.values()]
    for line in lines:
        line.means = {name: mean(line.values(name), line.absent(name)) for name in question.metrics}
    _set_baselines(lines, question)
    _set_scaling(lines)
    shown = varying(lines)
    return sorted(lines, key=lambda line: (line.side, [_order(line.fields.get(name)) for name in shown]))


def _set_baselines(lines: Sequence[Line], question: Question) -> None:
    if not question.against and question.baseline is None:
        return
    is_baseline = _baseline_test(question)
    moving = set(question.allowed) | set(FIELDS) | ({question.baseline[0]} if question.baseline else set())
    settings: dict[Any, list[Line]] = defaultdict(list)
    for line in filter(is_baseline, lines):
        settings[_setting(line, moving)].append(line)
    for line in lines:
        if not is_baseline(line):
            line.baseline, line.no_baseline = _choose(line, settings[_setting(line, moving)], moving)
            if line.baseline is not None:
                base = line.baseline
                line.ratios = {name: ratio(line.values(name), base.values(name)) for name in question.metrics}


def _baseline_test(question: Question) -> Callable[[Line], bool]:
    if question.baseline is None:
        return lambda line: line.side == "against"
    name, wanted = question.baseline
    return lambda line: _matches(line.fields.get(name), wanted)


def _choose(line: Line, candidates: Sequence[Line], moving: set[str]) -> tuple[Line | None, str | None]:
    """Of several candidates the one that is as the line is in all that tells them apart, or in what must not move."""
    if not candidates:
        return None, "no baseline has the same configuration"
    apart = set(varying(candidates))
    for names in (apart, apart - moving):
        near = [one for one in candidates if _same(line, one, names)]
        if len(near) == 1:
            return near[0], None
    return None, f"several baselines, which differ in {', '.join(sorted(apart))}"


def _same(line: Line, other: Line, names: Iterable[str]) -> bool:
    return all(line.fields.get(name) == other.fields.get(name) for name in names)


def _setting(line: Line, moving: set[str]) -> Any:
    free = moving.union(PLATFORM)
    return frozenset(item for item in line.fields.items() if item[0].startswith(SETTING) and item[0] not in free)


def _set_scaling(lines: Sequence[Line]) -> None:
    """Efficiency within each series of lines that differ in the number of devices and in what follows from it."""
    series: dict[Any, list[Line]] = defaultdict(list)
    for line in lines:
        devices, batch = line.fields.get(DEVICES), line.fields.get(BATCH)
        if isinstance(devices, int) and isinstance(batch, int):
            rest = frozenset(item for item in line.fields.items() if item[0] not in _WITH_DEVICES)
            series[line.side, rest, "strong", batch].append(line)
            series[line.side, rest, "weak", batch / devices].append(line)
    for (_, _, kind, _), members in series.items():
        first = min(members, key=lambda line: line.fields[DEVICES])
        counts = [line.fields[DEVICES] for line in members]
        if len(counts) > 1 and len(set(counts)) == len(counts):
            for line in members:
                if line is not first:
                    line.scaling = _scaling(kind, line, first)


def _scaling(kind: str, line: Line, first: Line) -> Scaling:
    times = ratio(line.values(RATE), first.values(RATE))
    return Scaling(kind, first.fields[DEVICES], times.over(line.fields[DEVICES] / first.fields[DEVICES]))


def _units(found: Sequence[Observation], question: Question) -> dict[str, str]:
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
