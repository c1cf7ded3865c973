"""Numbers as small graphs of characters: curves of one or more rows, and bars. ASCII where a terminal has no more."""

import math
from collections.abc import Sequence

_BLOCKS, _ASCII_LEVELS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
_BAR, _ASCII_BAR = ("█", "░"), ("#", ".")

Values = Sequence[float | None]


def curve(values: Values, width: int, rows: int = 1, ascii_only: bool = False, from_zero: bool = True) -> list[str]:
    """Return values as rows of characters, the highest first: the mean of equally many values in each column.

    The scale begins at zero, or at the lowest value. A column without a value is blank.
    """
    columns = resample(values, width)
    finite = [value for value in columns if value is not None and math.isfinite(value)]
    if not finite:
        return [""] * rows
    low, high = min(0.0, *finite) if from_zero else min(finite), max(finite)
    levels = _ASCII_LEVELS if ascii_only else _BLOCKS
    heights = [_height(value, low, high, rows * len(levels)) for value in columns]
    return ["".join(_cell(height, row, levels) for height in heights) for row in reversed(range(rows))]


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


def _height(value: float | None, low: float, high: float, most: int) -> int:
    """Return how many levels a value is high, from 1; 0 without a value, and half of all if they are all the same."""
    if value is None:
        return 0
    if high == low:
        return max(1, most // 2)
    return 1 + round((value - low) / (high - low) * (most - 1))


def _cell(height: int, row: int, levels: str) -> str:
    above = height - row * len(levels)
    return " " if above <= 0 else levels[min(above, len(levels)) - 1]
