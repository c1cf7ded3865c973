"""Quantiles, by one definition in all reports."""

from __future__ import annotations

import math
from typing import Sequence

QUANTILES = (0, 1, 5, 25, 50, 75, 90, 95, 99, 100)  # per cent


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation between the sorted values, the first at share 0, the last at share 1.

    Hyndman and Fan's type 7, which is also NumPy's default. Needs at least one value.
    """
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return quantiles by name, of at least one value."""
    return {f"p{share}": quantile(values, share / 100) for share in QUANTILES}
