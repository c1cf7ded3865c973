"""Estimates of run time and memory from operation counts, corrected by earlier results."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

from sifmark.core.paths import import_shared
from sifmark.recipes.hardware import assumed_flops
from sifmark.studies.feasibility import ResolvedConfig, card_of
from sifmark.studies.outcomes import CHECK_SECONDS, IMAGE_SECONDS

START_SECONDS = IMAGE_SECONDS + CHECK_SECONDS  # and compilation, of which nothing is known yet
SEARCH_SECONDS = 120.0  # for the largest batch
OPERATION_SECONDS = 20.0  # a micro-benchmark, at all of its sizes
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
        return Estimate(IMAGE_SECONDS + configuration.idle_seconds + OPERATION_SECONDS)  # which checks itself
    memory = _memory_estimate().estimate(card, configuration).total / 1024
    searches = SEARCH_SECONDS if config.searches else 0.0
    worked = None if config.endless else _worked(configuration, card)
    if worked is None:
        return Estimate(None, memory)
    seconds = START_SECONDS + configuration.idle_seconds + searches + worked
    limit = configuration.time_limit_seconds
    return Estimate(min(seconds, limit) if limit else seconds, None if config.searches else memory)


@cache
def _memory_estimate() -> Any:
    return import_shared("worker.memory_estimate")


def _worked(configuration: Any, card: Any) -> float:
    """Return the seconds of all steps, warm-up included."""
    operations = card.flops_per_unit(configuration.task) * configuration.batch_size
    rate = assumed_flops(configuration.device, configuration.precision)
    devices = configuration.replicas * configuration.stages if configuration.device != "cpu" else 1
    step = operations / (rate * devices)
    if configuration.duration_seconds is not None:
        return float(configuration.duration_seconds + configuration.warmup_steps * step)
    return float(configuration.steps * step)


class Calibration:
    """How much longer runs of a system took than estimated, by workload; the median of all where there is none."""

    def __init__(self, measured: Iterable[tuple[str, str, float, float]]) -> None:
        """Take system, workload, measured and estimated seconds of each completed run."""
        ratios: dict[tuple[str, str], list[float]] = {}
        for system, workload, seconds, estimated in measured:
            for kind in ((system, workload), (system, "")):
                ratios.setdefault(kind, []).append(seconds / estimated)
        self._factors: Mapping[tuple[str, str], float] = {kind: median(values) for kind, values in ratios.items()}

    def correct(self, system: str, workload: str, seconds: float) -> float:
        """Return an estimate corrected by what was measured."""
        return seconds * self._factors.get((system, workload), self._factors.get((system, ""), 1.0))
