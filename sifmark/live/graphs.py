"""Numbers as small graphs of characters: sparklines and bars. ASCII where a terminal has no more."""

import math
from collections.abc import Sequence

_BLOCKS, _ASCII_LEVELS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
_BAR, _ASCII_BAR = ("█", "░"), ("#", ".")

MOST_POINTS = 512  # of a series; more than terminals have columns

Values = Sequence[float | None]


def curve(values: Values, width: int, ascii_only: bool = False, from_zero: bool = True) -> str:
    """Return values as a row of characters: the mean of equally many values in each column, blank without a value.

    The scale begins at zero, or at the lowest value.
    """
    columns = resample(values, width)
    finite = [value for value in columns if value is not None and math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(0.0, *finite) if from_zero else min(finite), max(finite)
    levels = _ASCII_LEVELS if ascii_only else _BLOCKS
    return "".join(" " if value is None else levels[_level(value, low, high, len(levels))] for value in columns)


def bar(share: float, width: int, ascii_only: bool = False) -> str:
    """Return a bar that is filled by a share from 0 to 1."""
    full, empty = _ASCII_BAR if ascii_only else _BAR
    filled = int(min(1.0, max(0.0, share)) * width)
    return full * filled + empty * (width - filled)


def resample(values: Values, width: int) -> list[float | None]:
    """Return at most `width` values: means of as many neighbours as that needs, without those that are not known."""
    size = max(1, math.ceil(len(values) / max(1, width)))
    return [mean(values[at : at + size]) for at in range(0, len(values), size)]


def mean(values: Values) -> float | None:
    """Return the mean of the values that are known and finite; None if none is."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else None


def _level(value: float, low: float, high: float, count: int) -> int:
    """Return the level of a value from 0; the middle if all values are the same."""
    return count // 2 - 1 if high == low else round((value - low) / (high - low) * (count - 1))


class Readings:
    """Values in equal intervals from the first to the last: when there are too many, each two become their mean."""

    def __init__(self) -> None:
        self.values: list[float | None] = []
        self._size = 1  # of values that become one
        self._last: list[float | None] = []

    def append(self, value: float | None) -> None:
        """Add the next value, which may be unknown."""
        self._last.append(value)
        if len(self._last) == self._size:
            self.values.append(mean(self._last))
            self._last.clear()
        if len(self.values) == MOST_POINTS:
            self.values = resample(self.values, MOST_POINTS // 2)
            self._size *= 2
