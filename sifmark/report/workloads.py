"""Workloads of a report: what may be ranked together, in the order in which a reader wants it.

A section has all results of a workload, a task and a data source; a workload here has those of one kind of run and
one precision among them. Numbers of different numbers of devices never compete: `alone` has those of the fewest.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sifmark.core.console import counted
from sifmark.recipes.names import cards
from sifmark.report.describe import slug, variant, variant_fields
from sifmark.report.results import Failure, Point, ReportResults, Section
from sifmark.results.catalogue import MICROBENCHMARK, Direction, direction_of, headlines, rates
from sifmark.results.comparison.compare import compare_observations
from sifmark.results.comparison.intervals import CANNOT_TELL, Ratio
from sifmark.results.comparison.observation import CONCURRENCY, PRECISION, USERS, Observation
from sifmark.results.comparison.repeats import RepeatGroup, Scaling
from sifmark.results.comparison.scaling import BATCH, DEVICES, THROUGHPUT, WEAK

TRAINING, INFERENCE, REQUESTS, GENERATION, SERVING = "training", "inference", "requests", "generation", "serving"
_ORDER = (TRAINING, "sampling", INFERENCE, GENERATION, REQUESTS, SERVING, MICROBENCHMARK)  # of kinds of run
_USUAL_DATA = "synthetic"
MORE, NO_DIFFERENCE = "more", "no difference shown"  # verdicts of ratios
BETTER, WORSE, SAME, UNKNOWN = "better", "worse", "same", "cannot-tell"


def judged(ratio: Ratio, metric: str) -> str:
    """Return what a ratio says of a system: `better`, `worse`, `same`, or `cannot-tell`."""
    verdict, direction = ratio.verdict, direction_of(metric)
    if verdict == CANNOT_TELL:
        return UNKNOWN
    if verdict == NO_DIFFERENCE or direction is Direction.NONE:
        return SAME
    return BETTER if (verdict == MORE) == (direction is Direction.HIGHER) else WORSE


@dataclass(frozen=True)
class Shared:
    """A configuration that systems have in common, with what each measured. The baseline may be one of the systems."""

    baseline: RepeatGroup
    points: dict[str, Point]  # by system, without the baseline

    @property
    def reach(self) -> tuple[int, float]:
        """How many systems have it, and how fast the baseline is."""
        metric = next(iter(self.points.values())).metric
        return len(self.points), self.baseline.means[metric].value or 0.0


@dataclass(frozen=True)
class Leader:
    """The system whose interval of the ratio to every other is on the better side, in a configuration of all."""

    system: str
    shared: Shared


@dataclass(frozen=True)
class Curve:
    """How a system scales over devices: the reference, and points of more devices with their efficiency."""

    system: str
    kind: str  # strong: the batch stays the same; weak: the batch per replica does
    reference: RepeatGroup
    points: tuple[tuple[Point, Ratio], ...]


@dataclass(frozen=True)
class Workload:
    """Results that may be ranked together."""

    section: Section
    kind: str  # of run: training, requests ...
    precision: str
    is_only_precision: bool = True
    _points: dict[str, dict[str, Point]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def results(self) -> ReportResults:
        return self.section.results

    @property
    def name(self) -> str:
        """The workload's name: `resnet50`."""
        return self.section.workload

    @property
    def title(self) -> str:
        """The workload in words, without what its title explains: `ResNet-50 v1.5`."""
        return self.section.short_title

    @property
    def task(self) -> str:
        """The kind of run, with what else tells it from others: `training`, `requests, fp32`, `training, real data`."""
        source = self.section.key.source
        words = [self.kind, "" if source == _USUAL_DATA else f"{source} data", self._precision]
        return ", ".join(filter(None, words))

    @property
    def _precision(self) -> str:
        return "" if self.is_only_precision else self.precision

    @cached_property
    def anchor(self) -> str:
        """Its name on the page and in names of files: no other workload of the report has the same."""
        key, same = self.section.key, 0
        for other in self.results.sections:
            same += (other.workload, other.key.task, other.key.source) == (self.name, key.task, key.source)
        source = "" if key.source == _USUAL_DATA else key.source
        identity = key.identity.removeprefix("sha256:")[:8] if same > 1 else ""
        return slug(self.name, self.kind, source, self._precision, identity)

    @cached_property
    def rate(self) -> str:
        """The metric by which systems are ranked: of the headlines of its kind the first of which more is better."""
        return next((name for name in rates(self.kind) if self.points(name)), THROUGHPUT)

    @cached_property
    def headlines(self) -> tuple[str, ...]:
        """The metrics to name first of which there are values."""
        return tuple(name for name in headlines(self.kind) if self.points(name))

    @property
    def load(self) -> str:
        """The field that says how much a device has to do at once: its batch size, or its number of clients."""
        return {REQUESTS: CONCURRENCY, SERVING: USERS}.get(self.kind, BATCH)

    @property
    def has_clients(self) -> bool:
        """Whether its load is that of clients, each of which waits for its answer."""
        return self.load in (CONCURRENCY, USERS)

    @property
    def load_name(self) -> str:
        return "number of clients" if self.has_clients else "batch size"

    def points(self, metric: str) -> list[Point]:
        """Return the points of a metric that have a value, in the order of `compare`; none where that refuses."""
        return list(self._by_result(metric).values())

    def beside(self, point: Point, metric: str) -> Point | None:
        """Return the point of another metric of the same results."""
        return self._by_result(metric).get(point.results[0].observation.id)

    def _by_result(self, metric: str) -> dict[str, Point]:
        if metric not in self._points:
            own = (point for point in self.section.points(metric) if self.has(point.observation))
            self._points[metric] = {point.observation.id: point for point in own}
        return self._points[metric]

    def has(self, observation: Observation) -> bool:
        """Return whether a result is one of this workload. What a run that failed would have done may not be known."""
        kind = observation.kind
        same = kind == self.kind or (kind == INFERENCE and self.kind == GENERATION)
        return same and str(observation.fields.get(PRECISION)) == self.precision

    def alone(self, metric: str) -> list[Point]:
        """Return the points of a metric on the fewest devices."""
        return [point for point in self.points(metric) if point.fields.get(DEVICES) == self.fewest]

    @cached_property
    def fewest(self) -> int | None:
        """The fewest devices of any measurement, or of any run if all failed; None where results do not count them."""
        measured = [point.fields for point in self.points(self.rate)]
        failed = [each.result.observation.fields for each in self.failures]
        counts = (fields.get(DEVICES) for fields in measured or failed)
        return min((count for count in counts if isinstance(count, int)), default=None)

    @cached_property
    def failures(self) -> tuple[Failure, ...]:
        return tuple(each for each in self.section.failures if self.has(each.result.observation))

    def load_of(self, fields: Mapping[str, Any]) -> int:
        """Return the load of a result: its batch size or number of clients; 0 if it has none, as requests at a rate."""
        load = fields.get(self.load)
        return load if isinstance(load, int) else 0

    def load_text(self, load: int) -> str:
        """Return a load in words: `batch size 1,024`, `1 client`."""
        return counted(load, "client") if self.has_clients else f"batch size {load:,}"

    def variant_of(self, point: Point) -> str:
        """Return what tells a point from others of its system at the same load, in words: `compile true`."""
        return variant(point.fields, self._variants)

    @cached_property
    def _variants(self) -> list[str]:
        return variant_fields(self.results, self.alone(self.rate), self.load, BATCH)

    @cached_property
    def ran(self) -> dict[str, dict[int, list[Point]]]:
        """Its points on the fewest devices by system and load, the least load first."""
        ran: dict[str, dict[int, list[Point]]] = {}
        for point in sorted(self.alone(self.rate), key=lambda point: self.load_of(point.fields)):
            if load := self.load_of(point.fields):
                ran.setdefault(point.system, {}).setdefault(load, []).append(point)
        return ran

    @cached_property
    def lost(self) -> dict[str, dict[int, Failure]]:
        """What failed on the fewest devices by system and load, the least load first."""
        lost: dict[str, dict[int, Failure]] = {}
        for failure in sorted(self.failures, key=lambda each: self.load_of(each.result.observation.fields)):
            fields = failure.result.observation.fields
            if (load := self.load_of(fields)) and fields.get(DEVICES) in (self.fewest, None):
                lost.setdefault(failure.system, {}).setdefault(load, failure)
        return lost

    @cached_property
    def best(self) -> dict[str, Point]:
        """The point of the highest rate on the fewest devices by system, in the order of systems."""
        best: dict[str, Point] = {}
        for point in self.alone(self.rate):
            if point.system not in best or point.value > best[point.system].value:
                best[point.system] = point
        return {name: best[name] for name in self.results.systems if name in best}

    def shared(self, metric: str, many: bool = False) -> list[Shared]:
        """Return the configurations in which systems are compared, on the fewest devices, or on more of them."""
        groups: dict[int, Shared] = {}
        for point in self.points(metric):
            baseline = point.row.baseline
            if (point.fields.get(DEVICES) != self.fewest) is many and baseline and point.ratio:
                shared = groups.setdefault(id(baseline), Shared(baseline, {}))
                shared.points.setdefault(point.system, point)
        return list(groups.values())

    @cached_property
    def contest(self) -> Shared | None:
        """The configuration in which most systems are compared by rate; of several the baseline's fastest one."""
        return max(self.shared(self.rate), key=lambda each: each.reach, default=None)

    @cached_property
    def leader(self) -> Leader | None:
        """The system that is better than each other one where they are compared, as `compare` judges it."""
        if self.contest is None:
            return None
        points, baseline = self.contest.points, self.contest.baseline
        rows = {name: point.row for name, point in points.items()}
        if not self.results.reference_name:
            rows[self.results.system(baseline.fields)] = baseline
        if len(rows) < 2:
            return None
        first = max(rows, key=lambda name: rows[name].means[self.rate].value or 0.0)
        divisor = self.results.by, self.results.value_of(first)
        query = replace(self.results.compare(self.rate).query, baseline=divisor, against=False)
        observations = [replace(each, side="") for row in rows.values() for each in row.observations]
        others = [row for row in compare_observations(observations, query).compared if row.ratios]
        behind = [judged(row.ratios[self.rate], self.rate) == WORSE for row in others]
        return Leader(first, self.contest) if len(behind) == len(rows) - 1 and all(behind) else None

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """How each system scales, by the kind of scaling and the reference that have the most points.

        That is what a study set out to measure: a sweep of batch sizes beside it makes many curves of two points.
        """
        series: dict[tuple[str, str, int], list[tuple[Point, Scaling]]] = defaultdict(list)
        for point in self.points(THROUGHPUT):
            for scaling in point.row.scalings:
                if scaling.efficiency.value is not None:
                    series[point.system, scaling.kind, id(scaling.reference)].append((point, scaling))
        if not series:
            return {}
        longest = {kind: max(len(each) for key, each in series.items() if key[1] == kind) for _, kind, _ in series}
        kind = max(longest, key=lambda kind: (longest[kind], kind == WEAK))
        best: dict[str, list[tuple[Point, Scaling]]] = {}
        for (system, own, _), members in series.items():
            if own == kind and (system not in best or _extent(members) > _extent(best[system])):
                best[system] = members
        return {name: _curve(name, kind, best[name]) for name in self.results.systems if name in best}


def _extent(members: Sequence[tuple[Point, Scaling]]) -> tuple[int, float]:
    return len(members), max(point.value for point, _ in members)


def _curve(system: str, kind: str, members: Sequence[tuple[Point, Scaling]]) -> Curve:
    ordered = sorted(members, key=lambda pair: pair[0].fields[DEVICES])
    return Curve(system, kind, members[0][1].reference, tuple((point, each.efficiency) for point, each in ordered))


def workloads_of(results: ReportResults) -> tuple[Workload, ...]:
    """Return the workloads: training before inference, by family, micro-benchmarks last."""
    every = [each for section in results.sections for each in _of_section(section)]
    return tuple(sorted(every, key=_place))


def ranked(workloads: Iterable[Workload]) -> list[Workload]:
    """Return those that systems are ranked by: micro-benchmarks describe a device."""
    return [each for each in workloads if each.kind != MICROBENCHMARK]


def _of_section(section: Section) -> list[Workload]:
    """Return the kinds and precisions of a section, also those of which every run failed."""
    pairs = {(each.observation.kind, str(each.observation.fields.get(PRECISION))) for each in section.members}
    kinds = {kind for kind, _ in pairs}
    if {INFERENCE, GENERATION} <= kinds:
        failed = {each.result.observation.id for each in section.failures}
        measured = {each.observation.kind for each in section.members if each.observation.id not in failed}
        if INFERENCE not in measured:  # runs that failed before they could show what they were
            pairs = {(GENERATION if kind == INFERENCE else kind, precision) for kind, precision in pairs}
    alone = {kind: len({precision for own, precision in pairs if own == kind}) == 1 for kind, _ in pairs}
    return [Workload(section, kind, precision, alone[kind]) for kind, precision in sorted(pairs)]


def _place(workload: Workload) -> tuple[int, str, str, str]:
    card = cards().get(workload.name, {})
    order = _ORDER.index(workload.kind) if workload.kind in _ORDER else len(_ORDER)
    return order, str(card.get("family", "~")), workload.title, workload.anchor
