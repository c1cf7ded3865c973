"""What earlier results of a study say: the values that a suite compares new ones with."""

from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any, NamedTuple

from sifmark.results.catalogue import MICROBENCHMARK, Direction, direction_of, kind_of, rates
from sifmark.results.load import load_file
from sifmark.studies.study import PlannedRun, RunState, Scalar

# What suites compare: one value of each kind, not all that follow from it.
COMPARED = ("throughput", "token_throughput", "step_time_p50", "latency_p50", "energy_per_unit", "time_to_target")
_Cell = tuple[str, str, tuple[tuple[str, Scalar], ...]]


class ReferenceValue(NamedTuple):
    """The value of a metric in earlier results: its median over the repeats."""

    value: float
    unit: str
    more_is_better: bool


def references(runs: Iterable[PlannedRun]) -> dict[str, dict[str, ReferenceValue]]:
    """Return by the key of a run the values that the repeats of its cell have had, by metric."""
    planned = list(runs)
    values: dict[_Cell, dict[tuple[str, str], list[float]]] = {}
    for each in planned:
        for name, metric in _metrics(each):
            values.setdefault(_cell(each), {}).setdefault((name, metric["unit"]), []).append(metric["value"])
    return {
        each.key: {name: _reference(name, numbers, unit) for (name, unit), numbers in values[_cell(each)].items()}
        for each in planned
        if _cell(each) in values
    }


def _metrics(planned: PlannedRun) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the metrics to compare of a completed run whose code was not proven wrong."""
    if planned.state is not RunState.DONE or planned.reason:
        return
    for loaded in load_file(str(planned.result)):
        if not loaded.problems and loaded.document["numerics"]["state"] != "failed":
            metrics, kind = loaded.document["metrics"], kind_of(loaded.document)
            # The rate of a whole sweep of sizes says nothing of a device.
            names = rates(MICROBENCHMARK) if kind == MICROBENCHMARK else COMPARED
            yield from ((name, metrics[name]) for name in names if metrics.get(name, {}).get("value") is not None)


def _cell(planned: PlannedRun) -> _Cell:
    run = planned.run
    return run.system, run.group, tuple(sorted(run.cell.items()))


def _reference(name: str, values: list[float], unit: str) -> ReferenceValue:
    return ReferenceValue(median(values), unit, direction_of(name) is Direction.HIGHER)
