"""Repeats of several runs in turn, as many as asked for, or until their means are known well enough."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sifmark.core.console import fraction, status
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.results.catalogue import headlines, kind_of, metric_of
from sifmark.results.comparison import intervals
from sifmark.results.comparison.intervals import Mean
from sifmark.results.marks import FEWEST_REPEATS
from sifmark.results.numbers import format_quantity

AUTO = "auto"
WITHIN = 0.02  # half the interval, relative to the mean
MOST = 30  # repeats of --repeat auto
LOOKS = 3  # in a row at which the interval is narrow enough; benchmarks/statistics/repeats.py has the coverage
_WENT_ON = (0, 3, 4, 5)  # exit codes after which an image goes on with its next run
_INVALID, _STOPPED = 6, 124  # exit codes that count more than those of failed runs


class Figure(NamedTuple):
    """What a run measured: the metric that its kind of run is known by, for a workload and a batch."""

    workload: str
    task: str
    batch_size: int
    label: str
    unit: str


Values = Mapping[Figure, float]


@dataclass(frozen=True)
class Repeats:
    """How often something is repeated: `most` times, or until half the interval is at most `within` of the mean."""

    most: int = 1
    within: float | None = None

    @property
    def is_auto(self) -> bool:
        """Whether the number depends on what is measured."""
        return self.within is not None

    def are_enough(self, values: Sequence[float]) -> bool:
        """Return whether the mean of some repeats is known well enough.

        The interval has to be narrow at several looks in a row: one look finds by chance, in few repeats, a spread
        that is too small, and stops there.
        """
        if self.within is None or len(values) < FEWEST_REPEATS + LOOKS - 1:
            return False
        looks = (values[: len(values) - back] for back in range(LOOKS))
        return all(half_width(intervals.mean(each)) <= self.within for each in looks)


@dataclass(frozen=True)
class Unit:
    """Something that is run again and again: its name for people, and what a run measured of it, in turn."""

    name: str
    measured: dict[Figure, list[float]] = field(default_factory=lambda: defaultdict(list))


def half_width(mean: Mean) -> float:
    """Return half the width of an interval on the side where it is wider, relative to the mean."""
    if mean.value is None or mean.low is None or mean.high is None or mean.value <= 0:
        return math.inf
    return max(mean.high - mean.value, mean.value - mean.low) / mean.value


def turn(count: int, number: int) -> list[int]:
    """Return the order of a round, counted from 0: forwards and backwards in turn, as in A B B A.

    Over two rounds each has the same mean place, so that a steady drift of the machine adds the same to all.
    """
    forwards = list(range(count))
    return forwards[::-1] if number % 2 else forwards


def figure_of(document: Mapping[str, Any]) -> tuple[Figure, float] | None:
    """Return what a run that completed is known by: of the headlines of its kind the first that it has."""
    metrics, workload, batch = document["metrics"], document["workload"], document["configuration"]["batch_size"]
    for name in headlines(kind_of(document)):
        value, metric = metrics.get(name, {}).get("value"), metric_of(name)
        if metric and isinstance(value, int | float) and document["status"]["state"] == "completed":
            figure = Figure(workload["name"], workload["task"], batch, metric.label, metrics[name]["unit"])
            return figure, float(value)
    return None


def repeat(units: Sequence[Unit], repeats: Repeats, start: Callable[[int], tuple[int, Values]]) -> int:
    """Run units in turn, and return the exit code of all as an image counts them. `start` runs one by its place.

    A run that was stopped, or was never begun, ends all. So does any that fails where the number of repeats depends
    on what they measure. Raises SifmarkError if one measured nothing there.
    """
    codes: list[int] = []
    for number in range(repeats.most):
        for place in turn(len(units), number):
            if repeats.most * len(units) > 1:
                status(f"round {number + 1}{'' if repeats.is_auto else f' of {repeats.most}'}: {units[place].name}")
            code, values = start(place)
            codes.append(code)
            for key, value in values.items():
                units[place].measured[key].append(value)
            if code not in _WENT_ON or (code and repeats.is_auto):
                return combined(codes)
            if repeats.is_auto and not values:
                cause = f"{units[place].name} left no result with a metric whose mean could be known"
                raise SifmarkError(cause, "give a number of repeats: --repeat 5", code="result-missing")
        if all_known(units, repeats):
            break
    return combined(codes)


def all_known(units: Sequence[Unit], repeats: Repeats) -> bool:
    """Return whether every mean is known as well as it was asked for."""
    return all(unit.measured and all(map(repeats.are_enough, unit.measured.values())) for unit in units)


def combined(codes: Sequence[int]) -> int:
    """Return the exit code of several runs: of an invalid result, else a signal or time limit, else the first."""
    ranked = [*(code for code in codes if code == _INVALID), *(code for code in codes if code >= _STOPPED), *codes]
    return next(filter(None, ranked), 0)


def conclusions(units: Sequence[Unit]) -> Iterator[str]:
    """Yield in words how well each mean is known."""
    for unit in units:
        for figure, values in unit.measured.items():
            mean = intervals.mean(values)
            known = format_quantity(mean.value or 0.0, figure.unit, mean.low, mean.high)
            interval = f", no interval: {mean.reason}" if mean.low is None else " (95 % interval)"
            yield f"{unit.name}: {figure.label} {known}{interval}, n={mean.count}"


def repeats_of(repeat: int | str, within: float | str | None = None, most: int | None = None) -> Repeats:
    """Return how often something is repeated, by what users give: a number or `auto`, and None for what they leave out.

    Raises UsageError for a value or a combination that means nothing.
    """
    if repeat == AUTO:
        return Repeats(_limit(MOST if most is None else most), _width(WITHIN if within is None else within))
    if within is not None or most is not None:
        cause = "a width of intervals and a limit of repeats are for as many repeats as that width needs"
        raise UsageError(cause, f"--repeat {AUTO} --within 2%", code="invalid-option")
    if not str(repeat).isdecimal() or int(repeat) < 1:
        raise UsageError(f"{repeat} repeats", f"a number from 1, or {AUTO}: --repeat 5", code="invalid-option")
    return Repeats(int(repeat))


def _limit(most: int) -> int:
    if most < FEWEST_REPEATS + LOOKS - 1:
        cause = f"at most {most} repeats, where {FEWEST_REPEATS + LOOKS - 1} are the fewest"
        raise UsageError(cause, f"leave it out: {MOST}", code="invalid-option")
    return most


def _width(within: float | str) -> float:
    """Return half the width of an interval, relative to the mean: 0.02 of `2%`."""
    width = fraction(str(within), "--within")
    if not width:
        raise UsageError("--within 0: no mean is known exactly", "for example 2%, or 0.02", code="invalid-option")
    return width
