"""Node screening: which nodes failed, and which differ from the fleet or from a kept baseline."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log, prod
from statistics import fmean, median
from typing import Any, NamedTuple

from sifmark.core.console import printable
from sifmark.core.errors import GateError, UsageError
from sifmark.results.catalogue import Direction, column_of, screening_paths
from sifmark.results.comparison.compare import Comparison, compare_results
from sifmark.results.comparison.compatibility import EXCLUSIONS, NUMERICS, Excluded
from sifmark.results.comparison.observation import NODES
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.documents import MetricValue
from sifmark.results.marks import FEWEST_REPEATS
from sifmark.studies.analysis.fleet import FEWEST, Deviation, deviating, tail_of
from sifmark.studies.analysis.node_measures import MEASURES, NodeMeasure, measure_node
from sifmark.studies.analysis.tails import Fleet, judge
from sifmark.studies.history.baseline import Baseline

HOST, SITE, NAME = "host.hostname.value", "site", "workload.name"
NODE_FIELDS = {"host": HOST, "site": SITE}  # what names a node: its host, or the system of a study, as in study.nodes
LEVEL = 0.01  # chance that a healthy fleet has an outlier
LEAST = 0.02  # difference, as a fraction, below which a node is not named
FLEET, BASELINE = "fleet", "baseline"
_NO_RESULT = "no result"
_OF_NODES = {HOST, SITE, NAME, *screening_paths()}  # fields in which runs of the same test may differ
_FAULTS = {"status.state", NUMERICS}
_LABEL = ("configuration.precision", "configuration.batch_size")
_RATHER_THAN_NODES = "more than half of the nodes failed it, so that it says nothing of a node"


class NodeFailure(NamedTuple):
    """A node that failed a test, or gave no result of it."""

    node: str
    test: str
    reason: str


class Outlier(NamedTuple):
    """A node that differs in one measure of one test."""

    node: str
    test: str
    measure: str
    unit: str
    value: float
    usual: float  # median of the fleet, or mean of the baseline
    ratio: float | None  # of the value to what is usual; None for temperatures, whose difference counts
    tail: float  # probability that a given healthy node differs as much
    against: str  # fleet or baseline
    worse: bool


class Oddity(NamedTuple):
    """A fact in which a node differs from most of the fleet."""

    node: str
    fact: str
    value: str
    usual: str


@dataclass(frozen=True)
class Limits:
    """When a node is named: the chance that a healthy fleet has an outlier, and the least difference, a fraction."""

    level: float = LEVEL
    least: float = LEAST

    def __post_init__(self) -> None:
        """Raise UsageError unless both are fractions."""
        if not (0 < self.level < 1 and 0 <= self.least < 1):
            remedy = "for example --level 0.01 --least 0.02"
            raise UsageError("the level and the least difference are fractions", remedy, code="invalid-option")


@dataclass(frozen=True)
class Screening:
    """What results of the nodes of a partition say about them."""

    nodes: tuple[str, ...]
    failures: tuple[NodeFailure, ...]
    outliers: tuple[Outlier, ...]
    oddities: tuple[Oddity, ...]
    judged: int  # measures of tests by which nodes were compared
    notes: tuple[str, ...]
    limits: Limits
    suspects: tuple[Outlier, ...] = ()  # as far off as normal noise hardly is, but tails that the fleet may have are
    suspect_rate: float | None = None  # chance of an outlier or suspect in this fleet if healthy; None: no fleet

    @property
    def named(self) -> dict[str, str]:
        """The nodes to take out of service, with the first reason; those that failed come first."""
        reasons = {each.node: f"{each.test}: {each.reason}" for each in reversed(self.failures)}
        worse = [each for each in self.outliers if each.worse]
        of_outliers = {each.node: f"{each.test}: {outlier_text(each)}" for each in reversed(worse)}
        return {**dict(sorted(reasons.items())), **{n: t for n, t in sorted(of_outliers.items()) if n not in reasons}}

    def require_healthy(self) -> None:
        """Raise GateError if nodes are named, or if none was compared with anything."""
        if self.named:
            cause = f"nodes are named: {', '.join(map(printable, self.named))}"
            raise GateError(cause, "the table says why", code="nodes-named")
        if not self.judged:
            cause = f"none of {len(self.nodes)} nodes could be compared with others, or with a baseline"
            remedy = f"give results of the same test on {FEWEST} nodes, or --baseline RESULTS"
            raise GateError(cause, remedy, code="nodes-not-compared")


@dataclass
class NodeTest:
    """Runs of several nodes that differ in nothing but the node."""

    label: str
    fields: dict[str, Any]
    rows: dict[str, list[RepeatGroup]] = field(default_factory=lambda: defaultdict(list))
    baseline: list[tuple[str, RepeatGroup]] = field(default_factory=list)  # each with its node

    def values(self, measure: str) -> dict[str, list[float]]:
        """Return what the repeats of each node measured, without nodes that measured nothing."""
        values = {node: [value for row in rows for value in row.values(measure)] for node, rows in self.rows.items()}
        return {node: numbers for node, numbers in values.items() if numbers}

    def unit(self, measure: str) -> str:
        """Return the unit of a measure."""
        rows = (row for rows in self.rows.values() for row in rows)
        numbers: Iterator[MetricValue] = (each.numbers[measure] for row in rows for each in row.observations)
        return next((number.unit for number in numbers if number.value is not None), "1")


def screen(
    paths: Iterable[str],
    expected: Sequence[str] = (),
    against: str = "",
    limits: Limits | None = None,
    by: str = HOST,
    kept: Baseline | None = None,
) -> tuple[Screening, Comparison]:
    """Screen the nodes that results at some paths are of, and the comparison that they were made of.

    `expected` names nodes that should have results; `against` is where the results of a baseline are, if it is not one
    that was `kept`.
    """
    fields = (HOST, NAME, *screening_paths())
    query = Query(metrics=("throughput",), optional_fields=fields, against=bool(against or kept))
    baselines = list(kept.observations(query.extra_fields)) if kept else ()
    comparison = compare_results(paths, query, against, baselines=baselines, measure=measure_node)
    return screen_nodes(comparison, expected, limits or Limits(), by), comparison


def screen_nodes(comparison: Comparison, expected: Sequence[str], limits: Limits, by: str = HOST) -> Screening:
    """Screen the nodes whose results are in a comparison that was made with HOST, NAME and `screening_paths` as fields.

    `by` is the field that names a node.
    """
    rows = [row for table in comparison.tables for row in table.rows]
    spread = [row for row in rows if (row.fields.get(NODES) or 1) > 1]
    namer = _NodeNamer(by, frozenset(expected))
    tests = _tests([row for row in rows if (row.fields.get(NODES) or 1) == 1], namer)
    failed = [each for each in comparison.excluded if each.result.side == "results" and _FAULTS & set(each.fields)]
    nodes = (
        {node for test in tests for node in test.rows}
        | {namer.name(each.result.fields) for each in failed}
        | set(expected)
    )
    failures, of_tests = _failures(tests, [(namer.name(each.result.fields), each) for each in failed], nodes)
    notes = [*of_tests, *_variants(tests), *_small_fleets(tests), *_small_baselines(tests)]
    if spread:
        notes.append(f"{sum(len(row.observations) for row in spread)} results of several nodes are of no single node")
    pairs = [(test, measure) for test in tests for measure in MEASURES if _is_judged(test, measure)]
    sides = 2 if any(test.baseline for test in tests) else 1
    level = limits.level / max(1, len(pairs) * sides)
    samples = [_NodeSample.of(test, measure) for test, measure in pairs]
    fleets = [sample for sample in samples if len(sample.values) >= FEWEST]
    judged = judge([Fleet(each.values, each.runs, deviating(each.values, level)) for each in fleets], level)
    outliers = [outlier for sample in samples for outlier in _against_baseline(sample, level, limits.least)]
    suspects = list[Outlier]()
    for sample, found in zip(fleets, judged, strict=True):
        outliers += _against_fleet(sample, found.outliers, limits.least)
        suspects += _against_fleet(sample, found.suspects, limits.least)
    return Screening(
        tuple(sorted(nodes)),
        tuple(sorted(failures)),
        tuple(sorted(outliers, key=_worst_first)),
        tuple(_oddities(tests)),
        len(pairs),
        tuple(notes),
        limits,
        tuple(sorted(suspects, key=_worst_first)),
        1 - prod(1 - each.suspect_rate for each in judged) if judged else None,
    )


def outlier_text(outlier: Outlier) -> str:
    """Return the measure with how far it is from what is usual: `throughput 0.91 times the fleet`."""
    if outlier.ratio is None:
        return f"{outlier.measure} {outlier.value - outlier.usual:+.0f} {outlier.unit} from the {outlier.against}"
    return f"{outlier.measure} {outlier.ratio:.3g} times the {outlier.against}"


def _worst_first(outlier: Outlier) -> tuple[bool, float, str]:
    return not outlier.worse, outlier.tail, outlier.node


class _NodeNamer(NamedTuple):
    """Names the node of a result, as those who expect results name it: without its domain, if they do."""

    field: str
    expected: frozenset[str]

    def name(self, fields: Mapping[str, Any]) -> str:
        """Return the node's name."""
        value = fields.get(self.field)
        if value is None:
            return "unknown host" if self.field == HOST else "unknown site"
        short = str(value).partition(".")[0]
        return short if short in self.expected and value not in self.expected else str(value)


def _tests(rows: Sequence[RepeatGroup], namer: _NodeNamer) -> list[NodeTest]:
    """Return rows by what was run: all fields but the node and facts about it. Rows of a baseline may be of any."""
    tests: dict[Any, NodeTest] = {}
    for row in rows:
        fields = {name: value for name, value in row.fields.items() if name not in _OF_NODES}
        key = row.observations[0].group, frozenset(fields.items())
        test = tests.setdefault(key, NodeTest(_label(row), fields))
        if row.side == "against":
            test.baseline.append((namer.name(row.fields), row))
        else:
            test.label = _label(row)  # a kept baseline does not have the workload's name
            test.rows[namer.name(row.fields)].append(row)
    return [test for test in tests.values() if test.rows]


def _label(row: RepeatGroup) -> str:
    precision, batch = (row.fields.get(name) for name in _LABEL)
    task = row.observations[0].group.task
    kind = "" if task == "microbenchmark" else f" {task}, batch {batch}"
    return f"{row.fields.get(NAME)}{kind}, {precision}"


def _failures(
    tests: Sequence[NodeTest], failed: Sequence[tuple[str, Excluded]], nodes: set[str]
) -> tuple[list[NodeFailure], list[str]]:
    """Return what nodes failed or lack, and notes on tests that failed for most, which are no fault of a node."""
    by_test: dict[str, dict[str, str]] = defaultdict(dict)
    passed: dict[str, set[str]] = defaultdict(set)
    for test in tests:
        passed[test.label] |= set(test.rows)
    for node, each in failed:
        row = RepeatGroup("results", each.result.fields, [each.result])
        by_test[_label(row)].setdefault(node, _reason(each))
    failures, notes = [], []
    for label in sorted({*by_test, *passed}):
        reasons = by_test[label]
        if len(reasons) * 2 > len(nodes) and len(nodes) > 1:
            notes.append(f"{label}: {_RATHER_THAN_NODES}: {next(iter(reasons.values()))}")
            continue
        missing = nodes - passed[label] - set(reasons)
        if len(missing) * 2 < len(nodes):
            reasons = reasons | dict.fromkeys(missing, _NO_RESULT)
        failures += [NodeFailure(node, label, reason) for node, reason in reasons.items()]
    absent = nodes - set().union(*passed.values(), *by_test.values())
    return [each for each in failures if each.node not in absent] + [
        NodeFailure(node, "every test", _NO_RESULT) for node in absent
    ], notes


def _reason(excluded: Excluded) -> str:
    name = next(name for name in excluded.fields if name in _FAULTS)
    value = excluded.result.fields[name]
    return f"{value}" if name == "status.state" else f"{name} {str(value).lower()}: {EXCLUSIONS[name].why}"


def _is_judged(test: NodeTest, measure: NodeMeasure) -> bool:
    count = len(test.values(measure.name))
    return count >= FEWEST or any(_baseline_sample(test, measure, node) for node in test.values(measure.name))


class _NodeSample(NamedTuple):
    """What the nodes have of one measure of a test; logarithms if it is relative."""

    test: NodeTest
    measure: NodeMeasure
    values: dict[str, float]  # of a node: the mean of its runs
    runs: dict[str, list[float]]
    relative: bool

    @classmethod
    def of(cls, test: NodeTest, measure: NodeMeasure) -> "_NodeSample":
        values = test.values(measure.name)
        relative = measure.relative and all(value > 0 for numbers in values.values() for value in numbers)
        runs = {node: list(map(log, numbers)) if relative else numbers for node, numbers in values.items()}
        return cls(test, measure, {node: fmean(numbers) for node, numbers in runs.items()}, runs, relative)


def _against_fleet(sample: _NodeSample, deviations: Iterable[Deviation], least: float) -> Iterator[Outlier]:
    usual = median(sample.values.values())
    for each in deviations:
        place = _Place(sample.values[each.member], usual, each.tail, sample.relative, FLEET)
        yield from _outlier(sample.test, sample.measure, each.member, place, least)


def _against_baseline(sample: _NodeSample, level: float, least: float) -> Iterator[Outlier]:
    test, measure, relative = sample.test, sample.measure, sample.relative
    for node, value in sample.values.items():
        kept = _baseline_sample(test, measure, node, relative)
        if kept and (tail := tail_of(value, kept)) < level / len(sample.values):
            yield from _outlier(test, measure, node, _Place(value, fmean(kept), tail, relative, BASELINE), least)


class _Place(NamedTuple):
    """Where a node is among others; `value` and `usual` are logarithms if it is relative."""

    value: float
    usual: float
    tail: float
    relative: bool
    against: str


def _outlier(test: NodeTest, measure: NodeMeasure, node: str, place: _Place, least: float) -> Iterator[Outlier]:
    """Yield the outlier if the difference matters."""
    difference = place.value - place.usual
    if abs(difference) < (log(1 + least) if place.relative else measure.least or 0.0):
        return
    worse = measure.better is (Direction.HIGHER if difference < 0 else Direction.LOWER)
    value, usual = (exp(place.value), exp(place.usual)) if place.relative else (place.value, place.usual)
    ratio = exp(difference) if place.relative else None
    unit = test.unit(measure.name)
    yield Outlier(node, test.label, measure.name, unit, value, usual, ratio, place.tail, place.against, worse)


def _centre(values: Sequence[float], relative: bool) -> float:
    return fmean(map(log, values)) if relative else fmean(values)


def _baseline_sample(test: NodeTest, measure: NodeMeasure, node: str, relative: bool = False) -> list[float]:
    """Return what a node is compared with: a value for each host of the baseline, or its own earlier repeats.

    Repeats of one host say how much that host varies, but not how much hosts differ: of a baseline of too few hosts, a
    node is compared with its own values. Empty if the baseline does not say how much to expect.
    """
    by_host: dict[Any, list[float]] = defaultdict(list)
    own: list[float] = []
    for name, row in test.baseline:
        values = [value for value in row.values(measure.name) if value > 0 or not relative]
        by_host[row.fields.get(HOST)] += values
        own += values if name == node else ()
    hosts = [_centre(numbers, relative) for numbers in by_host.values() if numbers]
    sample = hosts if len(hosts) >= FEWEST_REPEATS else [_centre([value], relative) for value in own]
    return sample if len(sample) >= FEWEST_REPEATS else []


def _oddities(tests: Sequence[NodeTest]) -> Iterator[Oddity]:
    """Yield the facts in which a node differs from more than half of all nodes."""
    for path in screening_paths():
        values: dict[str, str] = {}
        for test in tests:
            for node, rows in test.rows.items():
                facts = [str(row.fields[path]) for row in rows if row.fields.get(path) is not None]
                values |= {node: facts[0]} if facts else {}
        counts = Counter(values.values())
        if len(counts) < 2:
            continue
        usual, count = counts.most_common(1)[0]
        if count * 2 > len(values):
            yield from (
                Oddity(node, column_of(path), value, usual) for node, value in sorted(values.items()) if value != usual
            )


def _variants(tests: Sequence[NodeTest]) -> Iterator[str]:
    """Yield which nodes are compared among themselves only, since their runs differ in more than the node."""
    by_label: dict[str, list[NodeTest]] = defaultdict(list)
    for test in tests:
        by_label[test.label].append(test)
    for label, variants in by_label.items():
        largest = max(variants, key=lambda test: len(test.rows))
        for test in variants:
            if test is not largest:
                names = _differing(test.fields, largest.fields)
                nodes = ", ".join(sorted(test.rows))
                yield f"{label}: {nodes} differ from the other nodes in {names}, and are compared without them"


def _differing(fields: Mapping[str, Any], others: Mapping[str, Any]) -> str:
    return ", ".join(sorted(name for name in {*fields, *others} if fields.get(name) != others.get(name)))


def _small_fleets(tests: Sequence[NodeTest]) -> Iterator[str]:
    for test in tests:
        if len(test.rows) < FEWEST:
            baseline = "the baseline alone" if test.baseline else "nothing: give a baseline"
            yield f"{test.label}: {len(test.rows)} nodes where {FEWEST} are needed; compared with {baseline}"


def _small_baselines(tests: Sequence[NodeTest]) -> Iterator[str]:
    """Yield which nodes a baseline of too few hosts says nothing of."""
    for test in tests:
        hosts = {row.fields.get(HOST) for _, row in test.baseline}
        repeats = Counter(name for name, row in test.baseline for _ in row.observations)
        unjudged = sorted(node for node in test.rows if repeats[node] < FEWEST_REPEATS)
        if test.baseline and len(hosts) < FEWEST_REPEATS and unjudged:
            yield (
                f"{test.label}: the baseline has {len(hosts)} hosts where {FEWEST_REPEATS} are needed to know how much "
                f"hosts differ, and fewer than {FEWEST_REPEATS} repeats of {', '.join(unjudged)}: not compared with it"
            )
