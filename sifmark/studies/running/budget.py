"""Runs within a time budget: which come first, and how long each will take."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from sifmark.core.errors import UsageError
from sifmark.studies.image_options import MAX
from sifmark.studies.study import PlannedRun, Scalar

_BUDGET = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def parse_budget(text: str) -> float:
    """Return the seconds of a budget: `2h`, `1h30m`, `45m`, `90`. Raises UsageError."""
    match = _BUDGET.fullmatch(text)
    parts = [float(part or 0) for part in match.groups()] if match else []
    if not any(parts):
        raise UsageError(f"--budget {text}: that is no time", "write it as 2h, 1h30m or 45m", code="invalid-option")
    hours, minutes, seconds = parts
    return hours * 3600 + minutes * 60 + seconds


def most_informative_first(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Return runs so that a beginning of them, wherever it ends, says most about the study.

    First repeats come first. Among those of one repeat, cells come first that lie at the ends of their axes of
    numbers, then the middles between these, and so on; every value of another axis is an end.
    """
    levels = _levels(runs)
    return sorted(runs, key=lambda planned: (planned.run.repeat, _level(planned, levels)))


def _level(planned: PlannedRun, levels: Mapping[tuple[str, str, str], Mapping[Scalar, int]]) -> int:
    run = planned.run
    return sum(levels[run.system, run.group, key].get(value, 0) for key, value in run.cell.items())


def _levels(runs: Iterable[PlannedRun]) -> dict[tuple[str, str, str], dict[Scalar, int]]:
    """Return the level of each value by system, group and axis: 0 at the ends."""
    values = defaultdict[tuple[str, str, str], set[Scalar]](set)
    for planned in runs:
        for key, value in planned.run.cell.items():
            values[planned.run.system, planned.run.group, key].add(value)
    return {axis: _halving(_sizes(those)) for axis, those in values.items()}


def _sizes(values: Iterable[Scalar]) -> list[Scalar]:
    sizes = ((size_of(value), value) for value in values)
    return [value for _, value in sorted((size, value) for size, value in sizes if size is not None)]


def _halving(values: Sequence[Scalar]) -> dict[Scalar, int]:
    """Return 0 for the first and the last value, 1 for the middle one, 2 for those in the middle of the halves ..."""
    levels = dict.fromkeys((*values[:1], *values[-1:]), 0)
    gaps, level = [(0, len(values) - 1)], 0
    while gaps:
        level += 1
        middles = [(low, (low + high) // 2, high) for low, high in gaps if high - low > 1]
        levels.update((values[middle], level) for _, middle, _ in middles)
        gaps = [gap for low, middle, high in middles for gap in ((low, middle), (middle, high))]
    return levels


def size_of(value: Scalar) -> float | None:
    """Return what a value of an axis of numbers is ordered by; None for a value that is no number."""
    if value == MAX:
        return float("inf")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
