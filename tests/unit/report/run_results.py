"""Results for charts of runs: with epochs, targets, parts of latency, memory, courses of power, and points."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from unit.report.chart_results import Value, with_metric

from sifmark.report.results import ReportResult, ReportResults

BATCH = "configuration.batch_size"
PARTS = ("preprocessing", "transfer", "compute", "retrieval", "other")


def batch(result: ReportResult) -> int:
    return int(result.observation.fields[BATCH])


def with_documents(results: ReportResults, change: Callable[[ReportResult], dict[str, Any]]) -> ReportResults:
    """The same results with other parts of their documents."""
    members = [replace(each, document={**each.document, **change(each)}) for each in results.members]
    return replace(results, members=tuple(members))


def with_epochs(results: ReportResults) -> ReportResults:
    """Results of two epochs: the first one has compilation."""

    def of_one_sample(seconds: float) -> Value:
        return lambda each: seconds / batch(each) ** 0.5

    for metric, seconds in {"phases.compile": 40.0, "epochs.1": 160.0, "epochs.2": 118.0}.items():
        results = with_metric(results, metric, "s", of_one_sample(seconds))
    return results


def with_parts(results: ReportResults) -> ReportResults:
    """Results of requests whose latency has five parts."""
    for number, part in enumerate(PARTS):

        def seconds(each: ReportResult, number: int = number) -> float | None:
            count = each.observation.fields.get("configuration.concurrency")
            return None if count is None else 1e-3 * count * (1, 2, 9, 0.5, 3)[number]

        results = with_metric(results, f"latency_{part}_mean", "s", seconds)
    return results


def with_memory(results: ReportResults, limit: float | None = 80 * 1024.0) -> ReportResults:
    """Results of devices with as much memory as `limit`, MiB, of which 32 samples need 60 GiB."""
    results = with_metric(results, "peak_allocated_memory", "MiB", lambda each: 1024 * (4 + 1.75 * batch(each)))
    device = {} if limit is None else {"memory_mib": limit}
    return with_documents(
        results,
        lambda each: {
            "accelerator": {k: v for k, v in each.document["accelerator"].items() if k != "memory_mib"}
            | device
            | {"ranks": 1}
        },
    )


def with_targets(results: ReportResults, never: str = "") -> ReportResults:
    """Results of training to an accuracy, which one system never reached."""

    def seconds(each: ReportResult) -> float | None:
        return None if results.system(each.observation.fields) == never else 2000.0 / batch(each) ** 0.5

    goal = {"metric": "accuracy", "value": 0.75, "evaluation_steps": 100}
    return with_documents(
        with_metric(results, "time_to_target", "s", seconds),
        lambda each: {"configuration": {**each.document["configuration"], "goal": goal}},
    )


def with_steps(results: ReportResults, slow: int) -> ReportResults:
    """Results that list 20 steps, of which four are warm-up; one of the timed steps of batch 8 is `slow`."""

    def steps(each: ReportResult) -> dict[str, Any]:
        seconds = [1.0, 0.3, 0.2, 0.15, *(0.1 + 0.001 * (number % 5) for number in range(16))]
        unsteady = batch(each) == 8
        if unsteady:
            seconds[slow - 1] = 0.4
        quantiles = {"p25": 0.101, "p50": 0.102, "p75": 0.103}
        steadiness = {"drift": {"value": 0.2 if unsteady else 0.0, "unit": "1"}, "outliers": None, "steady": None}
        return {
            "steps": {**each.document["steps"], "count": 20, "untimed": 4, "seconds": seconds, "quantiles": quantiles},
            "steadiness": {**each.document["steadiness"], **steadiness},
        }

    return with_documents(results, steps)


def with_microbenchmarks(results: ReportResults) -> ReportResults:
    """The results and, of each system, copies within memory by size."""
    firsts = [
        next(each for each in results.members if results.system(each.observation.fields) == system)
        for system in results.systems
    ]
    more = [_memory_copy(first, 1500.0 * (1 + 0.5 * place)) for place, first in enumerate(firsts)]
    return replace(results, members=(*results.members, *more))


def _memory_copy(like: ReportResult, value: float) -> ReportResult:
    observed, name = like.observation, "memory_copy"
    numbers = {metric: number for metric, number in observed.numbers.items() if metric.startswith("phases")}
    number = next(iter(observed.numbers.values()))
    numbers["memory_bandwidth"] = number._replace(value=value, unit="GB/s", reason=None)
    numbers["small_message_latency"] = number._replace(value=1e-5, unit="s", reason=None)
    group = observed.group._replace(identity=f"sha256:{name}", task="microbenchmark")
    measured = [
        {"size": size, "direction": None, "memory": None, "bus_bandwidth_gb_per_second": value * size / (size + 2**20)}
        for size in (2**10, 2**15, 2**20, 2**25, 2**30)
    ]
    document = {
        **like.document,
        "workload": {**like.document["workload"], "name": name, "task": "microbenchmark"},
        "points": {
            "operation": name,
            "measured": measured,
            "omitted": [],
            "last_level_cache": {"value": 64, "unit": "MiB", "source": "the kernel"},
        },
    }
    fields = {**observed.fields, BATCH: 1, "configuration.concurrency": None}
    observation = replace(observed, id=f"{observed.id}-{name}", title=name, group=group, numbers=numbers, fields=fields)
    return ReportResult(observation, document)
