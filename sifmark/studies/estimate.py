"""Estimates of run time and memory from operation counts, corrected by earlier results."""

from dataclasses import dataclass
from functools import cache
from statistics import mean, median
from typing import Any

from sifmark.core.paths import import_shared
from sifmark.recipes.hardware import assumed_flops
from sifmark.studies.feasibility import ResolvedConfig, card_of
from sifmark.studies.outcomes import CHECK_SECONDS, IMAGE_SECONDS
from sifmark.studies.study import Command, Run

START_SECONDS = IMAGE_SECONDS + CHECK_SECONDS  # and compilation, of which nothing is known yet
SEARCH_SECONDS = 120.0  # for the largest batch
OPERATION_SECONDS = 5.0  # a micro-benchmark, at all of its sizes; 3 s on two cores, 4 s to 30 s on an H200
PRIOR_SECONDS = 60.0  # of estimates that count as if they had held, where only other workloads were measured
SMOKE_SECONDS = 30.0  # of a reduced network on a CPU, whose operations nobody has counted: 30 to 41 s on two busy cores
REFUSED_SECONDS = 15.0  # a batch that the image refuses before it is tried


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run takes; None where nothing can be said."""

    seconds: float | None = None
    memory_gib: float | None = None  # of one device, at least


@cache
def estimate(config: ResolvedConfig) -> Estimate:
    """Return what a run takes by its operations and the rates that are assumed here."""
    configuration = config.configuration
    if configuration is None:
        return Estimate()
    card = card_of(configuration)
    if configuration.task == "microbenchmark":  # its buffers are as large as the device's memory allows
        return Estimate(IMAGE_SECONDS + _rest(configuration) + OPERATION_SECONDS)  # which checks itself
    if configuration.computed(card) is not card:
        return Estimate(SMOKE_SECONDS)
    memory = _memory_estimate().estimate(card, configuration).total / 1024
    searches = SEARCH_SECONDS if config.searches else 0.0
    counted = card.flops_per_unit(configuration.task) > 0  # of requests to an engine nobody has
    worked = _worked(configuration, card) if counted and not config.endless else None
    if worked is None:
        return Estimate(None, memory)
    seconds = START_SECONDS + _rest(configuration) + searches + worked
    limit = configuration.time_limit_seconds
    return Estimate(min(seconds, limit) if limit else seconds, None if config.searches else memory)


@cache
def _memory_estimate() -> Any:
    return import_shared("worker.memory_estimate")


def _rest(configuration: Any) -> float:
    """Return the seconds in which the power of an idle device is metered: of a CPU only root may read it, as a rule."""
    return 0.0 if configuration.device == "cpu" else float(configuration.idle_seconds)


def _worked(configuration: Any, card: Any) -> float:
    """Return the seconds of all steps, warm-up included."""
    operations = card.flops_per_unit(configuration.task) * configuration.batch_size
    rate = assumed_flops(configuration.device, configuration.precision)
    parts = configuration.stages * configuration.tensor
    devices = configuration.replicas * parts if configuration.device != "cpu" else 1
    step = operations / (rate * devices)
    if configuration.duration_seconds is not None:
        return float(configuration.duration_seconds + configuration.warmup_steps * step)
    return float(configuration.steps * step)


class Estimates:
    """How long runs take, by those that have ended: as their repeats on average, else as estimated and corrected."""

    def __init__(self) -> None:
        self._repeats: dict[Command, list[float]] = {}
        self._of_workload: dict[tuple[str, str], list[tuple[float, float]]] = {}  # measured and estimated seconds
        self._unknown: dict[tuple[str, str], list[float]] = {}

    def learn(self, run: Run, seconds: float, estimated: float | None, *, is_whole: bool = True) -> None:
        """Take a run into account that took `seconds`, the start of its image included.

        One that is not `is_whole`, as it did not fit into memory, says something of its repeats alone.
        """
        self._repeats.setdefault(run.command, []).append(seconds)
        if estimated and is_whole:
            self._of_workload.setdefault(_workload(run), []).append((seconds, estimated))
        elif is_whole:
            self._unknown.setdefault(_workload(run), []).append(seconds)

    def seconds(self, run: Run, estimated: float | None) -> float | None:
        """Return how long a run will take, or None if nothing is known of such runs yet."""
        if earlier := self._repeats.get(run.command):
            return mean(earlier)
        if estimated is not None:
            return estimated * self._factor(run)
        earlier = self._unknown.get(_workload(run))
        return mean(earlier) if earlier else None

    def _factor(self, run: Run) -> float:
        """Return how much longer runs took than estimated: those of the workload, else of its system.

        What other workloads took counts the more, the longer they were estimated to take.
        """
        if pairs := self._of_workload.get(_workload(run)):
            return float(median(measured / estimated for measured, estimated in pairs))
        others = [each for (system, _), pairs in self._of_workload.items() if system == run.system for each in pairs]
        measured, estimated = map(sum, zip(*others, (PRIOR_SECONDS, PRIOR_SECONDS), strict=True))
        return float(measured / estimated)


def _workload(run: Run) -> tuple[str, str]:
    return run.system, str(run.cell["workload"])
