"""Results in the formats of programs that watch numbers: Prometheus, MLPerf's tools, Bencher, CI systems.

These formats have a number for each configuration on each host: the mean of the results that are exported, with its
interval where the format has room. Measured numbers have the metric's own name and unit, as in results.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from sifmark.core.checks import Check, Status
from sifmark.core.gauges import Gauges, as_label
from sifmark.core.junit import junit_xml
from sifmark.core.shell import word
from sifmark.results.catalogue import Direction, column_of, direction_of, headlines, history_paths, metrics, path_of
from sifmark.results.comparison.collection import collect
from sifmark.results.comparison.compatibility import exclusion_fields
from sifmark.results.comparison.intervals import Mean
from sifmark.results.comparison.observation import ENVIRONMENT, Observation
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.comparison.sessions import mean
from sifmark.results.documents import Document, metric_value, metrics_of
from sifmark.results.load import LoadedResult
from sifmark.results.numbers import format_quantity

# What says at a glance what was measured, by the fields' names in tables.
LABELS = (
    *("site", "host.hostname", "workload.name", "workload.task", "accelerator.name", "accelerator.count"),
    *("precision", "batch_size", "concurrency"),
)
_PATHS = {name: path_of(name) for name in LABELS}
_QUERY = Query(every_metric=True, more_fields=tuple(_PATHS.values()))
# What may change without a new series, so that its effect is seen: drivers, images, the environment.
_CHANGES = frozenset(history_paths("stated")) - {_PATHS["host.hostname"]} | {"schema_version"}
_COMPLETED = "completed"


@dataclass(frozen=True)
class Measured:
    """A mean of repeats in its unit."""

    mean: Mean
    unit: str

    def text(self) -> str:
        """Return it in words, with its interval: `412.0 images/s ± 1.7 %`."""
        return format_quantity(self.mean.value or 0.0, self.unit, self.mean.low, self.mean.high)


@dataclass(frozen=True)
class Series:
    """A configuration on a host, which keeps its identity when images, drivers and settings of the host change."""

    identity: str  # eight hexadecimal digits
    fields: Mapping[str, Any]  # by dotted path, that identify it
    runs: list[Observation] = field(default_factory=list)  # in order of their start

    @cached_property
    def labels(self) -> dict[str, str]:
        """Its labels by the fields' names in tables; what has no value has no label."""
        values = {name: self.fields.get(path) for name, path in _PATHS.items()}
        return {name: str(value) for name, value in values.items() if value is not None}

    @property
    def name(self) -> str:
        """Its name for people and for tools that know series by name: unique, and the same tomorrow."""
        return f"{' / '.join(self.labels.values())} [{self.identity}]"

    @cached_property
    def measured(self) -> dict[str, Measured]:
        """Its metrics that have a value: means over the runs that are measurements of their workload."""
        row = RepeatGroup("", dict(self.fields), [run for run in self.runs if outcome(run) == _COMPLETED])
        units = {name: number.unit for run in row.observations for name, number in run.numbers.items()}
        means = {name: mean(row, name) for name in metrics() if name in units}
        return {name: Measured(each, units[name]) for name, each in means.items() if each.value is not None}

    def headlines(self, *directions: Direction) -> dict[str, Measured]:
        """Return the headlines of its kind of run that have a value and one of these directions."""
        names = headlines(self.runs[0].kind)
        return {
            name: self.measured[name] for name in names if name in self.measured and direction_of(name) in directions
        }


def outcome(run: Observation) -> str:
    """Return `completed`, or why a run is no measurement: how it ended, else `numerics_state_failed` and the like."""
    if not (excluding := exclusion_fields(run)):
        return _COMPLETED
    state = str(run.fields["status.state"])
    name = excluding[0]
    return state if state != _COMPLETED else f"{as_label(column_of(name))}_{str(run.fields[name]).lower()}"


def series_of(results: Iterable[LoadedResult]) -> list[Series]:
    """Return the series of valid results, in the order of their names."""
    series: dict[str, Series] = {}
    for run in sorted(collect(results, (), _QUERY).observations, key=lambda each: (each.started, each.id)):
        kept = {
            name: value
            for name, value in run.fields.items()
            if name not in _CHANGES and not name.startswith((ENVIRONMENT, "status.", "numerics."))
        }
        text = json.dumps([run.group.identity, run.group.task, run.group.source, kept], sort_keys=True)
        identity = hashlib.sha256(text.encode()).hexdigest()[:8]
        series.setdefault(identity, Series(identity, kept)).runs.append(run)
    return sorted(series.values(), key=lambda each: each.name)


def openmetrics(results: Iterable[LoadedResult]) -> str:
    """Return gauges as core/gauges.py writes them. Units are labels, since a rate may count images or tokens."""
    gauges = Gauges()
    for each in series_of(results):
        labels = {**each.labels, "configuration": each.identity}
        settings = {column_of(name): str(value) for name, value in each.fields.items() if value is not None}
        gauges.add("configuration_info", "What a configuration is.", {**settings, **labels}, 1)
        for state, count in sorted(Counter(map(outcome, each.runs)).items()):
            gauges.add("runs", "Runs by how they ended.", {**labels, "outcome": state}, count)
        for code, count in sorted(Counter(code for run in each.runs for code in run.marks).items()):
            gauges.add("marked_runs", "Runs with a reason not to publish them.", {**labels, "mark": code}, count)
        last = datetime.fromisoformat(each.runs[-1].started).timestamp()
        gauges.add("last_run_timestamp_seconds", "Start of the last run, seconds since 1970.", labels, last)
        for name, number in each.measured.items():
            about = metrics()[name].label
            for suffix, part in (("", "mean"), ("_low", "low"), ("_high", "high")):
                if (value := getattr(number.mean, _FIELDS[part])) is not None:
                    gauges.add(f"{name}{suffix}", f"{about}, {_HELP[part]}.", {**labels, "unit": number.unit}, value)
    return gauges.text()


_FIELDS = {"mean": "value", "low": "low", "high": "high"}
_HELP = {
    "mean": "mean of the repeats",
    "low": "lower end of the 95 % interval of the mean",
    "high": "upper end of the 95 % interval of the mean",
}


def bencher(results: Iterable[LoadedResult]) -> str:
    """Return Bencher Metric Format: by benchmark its measures, with the ends of intervals."""
    document = {
        each.name: {name: _bounded(number.mean) for name, number in each.headlines(*Direction).items()}
        for each in series_of(results)
        if each.measured
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _bounded(number: Mean) -> dict[str, float]:
    bounds = {"value": number.value, "lower_value": number.low, "upper_value": number.high}
    return {name: value for name, value in bounds.items() if value is not None}


def _for_action(results: Iterable[LoadedResult], direction: Direction) -> str:
    """Return the custom input of github-action-benchmark, all of it better in one direction."""
    entries = [
        {
            "name": f"{each.name} {name}",
            "unit": number.unit,
            "value": number.mean.value,
            **_range(number.mean),
            "extra": f"repeats: {number.mean.count}",
        }
        for each in series_of(results)
        for name, number in each.headlines(direction).items()
    ]
    return json.dumps(entries, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _range(number: Mean) -> dict[str, str]:
    """Return half the interval as the action reads it, towards the end that is further away; nothing without one."""
    if number.value is None or number.low is None or number.high is None:
        return {}
    return {"range": f"± {max(number.value - number.low, number.high - number.value):.6g}"}


def bigger_is_better(results: Iterable[LoadedResult]) -> str:
    """Return the headlines of which more is better, for github-action-benchmark."""
    return _for_action(results, Direction.HIGHER)


def smaller_is_better(results: Iterable[LoadedResult]) -> str:
    """Return the headlines of which less is better, for github-action-benchmark."""
    return _for_action(results, Direction.LOWER)


def junit(results: Iterable[LoadedResult]) -> str:
    """Return a JUnit report: a suite for each configuration, a test for each run. Measurements pass."""
    return junit_xml({each.name: list(_checks(each)) for each in series_of(results)})


def _checks(series: Series) -> Iterator[Check]:
    for number, run in enumerate(series.runs, 1):
        values = [(name, run.numbers.get(name)) for name in headlines(run.kind)]
        shown = [f"{name}: {each.value!r} {each.unit}" for name, each in values if each and each.value is not None]
        end = outcome(run)
        detail = "\n".join([f"{end}: {run.file}", *shown])
        remedy = "" if end == _COMPLETED else f"sifmark results.show {word(run.file)}"
        yield Check(f"run {number}", Status.PASSED if end == _COMPLETED else Status.FAILED, detail, remedy)


def mllog(results: Iterable[LoadedResult]) -> str:
    """Return MLPerf's log: `:::MLLOG` lines of each run, one run after the other.

    Results have no time for each event. `run_stop` is when the run finished, and `run_start` is so long before it as
    the run trained: to its target if it has one. Keys are those of mlperf_logging.mllog.constants.
    """
    lines = (line for each in results if not each.problems for line in _mllog_lines(each.document))
    return "".join(f":::MLLOG {json.dumps(line, allow_nan=False)}\n" for line in lines)


def _mllog_lines(document: Document) -> Iterator[dict[str, Any]]:
    begin, stop = (1000 * datetime.fromisoformat(document[name]).timestamp() for name in ("started", "finished"))
    numbers = {name: metric_value(metric) for name, metric in metrics_of(document).items()}
    values = {name: each.value for name, each in numbers.items() if each.value is not None and name in metrics()}
    trained = values.get("time_to_target", values.get("training_time", _of_phases(document)))
    start = max(begin, stop - 1000 * trained)
    about = {"id": document["id"], "file": "", "lineno": 0}

    def line(at: float, key: str, value: Any = None, kind: str = "POINT_IN_TIME", **more: Any) -> dict[str, Any]:
        fixed = {"namespace": "sifmark", "time_ms": round(at), "event_type": kind}
        return {**fixed, "key": key, "value": value, "metadata": {**about, **more}}

    configuration, target = document["configuration"], document["target"] or {}
    yield line(begin, "init_start", kind="INTERVAL_START")
    yield line(begin, "submission_benchmark", document["workload"]["name"])
    yield line(begin, "submission_platform", document["accelerator"].get("name"))
    yield line(begin, "global_batch_size", configuration["batch_size"])
    yield line(begin, "seed", configuration["seed"])
    yield line(start, "init_stop", kind="INTERVAL_END")
    yield line(start, "run_start", kind="INTERVAL_START")
    for each in target.get("evaluations", ()):
        at = min(stop, start + 1000 * each["training_seconds"])
        if (value := each[target["metric"]]) is not None:
            yield line(at, "eval_accuracy", value, metric=target["metric"], step_num=each["steps"])
    if values:
        yield line(stop, "tracked_stats", values, units={name: numbers[name].unit for name in values})
    status = "success" if document["status"]["state"] == _COMPLETED and target.get("reached", True) else "aborted"
    yield line(stop, "run_stop", kind="INTERVAL_END", status=status)


def _of_phases(document: Document) -> float:
    """Return the seconds from the begin of the first step on, of a run without a training time."""
    phases = document["phases"]
    return float(sum(phases[name]["seconds"] or 0.0 for name in ("compile", "warmup", "steady") if name in phases))


@dataclass(frozen=True)
class Consumer:
    """A format: what writes it, and the suffix of its files if that says it all."""

    write: Callable[[Iterable[LoadedResult]], str]
    suffix: str = ""


# By the name that the consumer has for it, or that people have for the consumer.
CONSUMERS = {
    "openmetrics": Consumer(openmetrics, ".prom"),  # the only suffix that node_exporter reads
    "mllog": Consumer(mllog),
    "bencher": Consumer(bencher),
    "customBiggerIsBetter": Consumer(bigger_is_better),
    "customSmallerIsBetter": Consumer(smaller_is_better),
    "junit": Consumer(junit, ".xml"),
}


def consumer_of(form: str, suffix: str) -> Consumer | None:
    """Return the format of this name, or of a file's suffix if no format is named; None for another one."""
    if form:
        return CONSUMERS.get(form)
    return next((each for each in CONSUMERS.values() if each.suffix and each.suffix == suffix), None)
