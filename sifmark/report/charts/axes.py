"""Axes: logarithmic ones with the values measured, quantities from zero with readable units, and names."""

import math
from collections.abc import Iterable
from typing import Any

from sifmark.results.numbers import scale_of

Axis = dict[str, Any]  # what a channel of an encoding says besides its field

_WIDEST = 30.0  # the ratio of two quantities up to which an axis that begins at zero still shows the smaller
_ROOM = 1.08  # above the largest value
_LONGEST_INTERVAL = 1.5  # of the largest value: what reaches further is cut off at the edge
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_MOST_TICKS = 12


def doubling(title: str, values: Iterable[float | str]) -> Axis:
    """Return an axis for what is doubled, such as batch sizes and devices: ticks at the values that were measured."""
    ticks = sorted({float(value) for value in values})
    every = math.ceil(len(ticks) / _MOST_TICKS)
    axis = {"values": ticks[::every], "format": "~r", "labelOverlap": "greedy", "tickCount": len(ticks)}
    room = (ticks[-1] / ticks[0]) ** 0.05 if len(ticks) > 1 else 2
    scale = {"type": "log", "base": 2, "domain": [ticks[0] / room, ticks[-1] * room], "nice": False}
    return {"type": "quantitative", "title": title, "scale": scale, "axis": axis}


def quantity(name: str, unit: str, values: Iterable[float], ends: Iterable[float | None] = ()) -> Axis:
    """Return an axis for a quantity: from zero, or logarithmic where the values differ too much for that.

    `ends` are upper ends of intervals. What is far above the values is cut off at the edge of the chart.
    """
    numbers = [value for value in values if math.isfinite(value)]
    if numbers and min(numbers) > 0 and max(numbers) / min(numbers) > _WIDEST:
        return logarithmic(name, unit, numbers)
    return from_zero(name, unit, numbers, ends)


def from_zero(name: str, unit: str, values: Iterable[float], ends: Iterable[float | None] = ()) -> Axis:
    """Return an axis for a quantity that begins at zero, as bars need it, unless values are negative."""
    numbers = [value for value in values if math.isfinite(value)]
    smallest, largest = min([0.0, *numbers]), max([0.0, *numbers])
    highest = min(max([largest, *(end for end in ends if end is not None)]), largest * _LONGEST_INTERVAL) * _ROOM
    top = 1.0 if smallest == highest == 0 else highest  # of negative values alone, the axis ends at zero
    scale = {"domain": [smallest * _ROOM, top], "nice": False, "zero": True}
    return measured(name, unit, max(largest, -smallest) or 1.0) | {"scale": scale}


def logarithmic(name: str, unit: str, values: Iterable[float], ends: Iterable[float | None] = ()) -> Axis:
    """Return a logarithmic axis for a quantity that is positive. `ends` are lower ends of intervals."""
    numbers = [value for value in values if value > 0 and math.isfinite(value)] or [1.0]
    smallest, largest = min(numbers), max(numbers)
    lowest = min([smallest, *(max(end, smallest / _LONGEST_INTERVAL) for end in ends if end is not None)])
    low, high = lowest / 1.2, largest * 1.2
    axis = measured(name, unit, largest) | {"scale": {"type": "log", "domain": [low, high], "nice": False}}
    if ticks := _ticks(low, high):
        axis["axis"] |= {"values": ticks, "tickCount": len(ticks)}  # Vega draws every second of more than the count
    return axis


def _ticks(low: float, high: float) -> list[float]:
    """Return 1, 2, 5, 10 and so on between two numbers, or only powers of ten; nothing if that is less than two."""
    powers = [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    steps = [1.0] if len(powers) > 4 else [1.0, 2.0, 5.0]
    ticks = [step * power for power in powers for step in steps if low <= step * power <= high]
    return ticks if len(ticks) > 1 else []


def measured(name: str, unit: str, largest: float) -> Axis:
    """Return the titles and labels of an axis of a quantity, in the unit that suits its largest value."""
    scale = scale_of(unit, [largest])
    factor, text = scale.factor, scale.unit
    value = f"datum.value/{factor!r}"
    labels = f"abs({value}) >= 1000 ? format({value}, '~s') : format({value}, '~r')"
    axis: dict[str, Any] = {"labelExpr": labels, "tickCount": 6, "labelOverlap": "greedy"}
    if text == "GiB":  # ticks at round numbers of MiB would have many digits
        axis["values"] = [factor * tick for tick in _round_numbers(largest / factor)]
    return {"type": "quantitative", "title": titled(name, text), "axis": axis}


def _round_numbers(largest: float) -> list[float]:
    """Return 0 and some multiples of 1, 2 or 5 times a power of ten up to a number and half as far again."""
    power = 10.0 ** math.floor(math.log10(largest))
    step = next(step for step in (0.2 * power, 0.5 * power, power, 2 * power) if largest / step <= 5)
    return [step * number for number in range(int(1.5 * largest / step) + 1)]


def titled(name: str, unit: str) -> str:
    """Return the title of an axis."""
    return name if unit in ("", "1") else f"{name} [{unit}]"


def names(title: str | None, values: Iterable[str], **axis: Any) -> Axis:
    """Return an axis of names in this order."""
    scale = {"domain": list(dict.fromkeys(values)), "paddingInner": 0.2, "paddingOuter": 0.1}
    return {"type": "nominal", "title": title, "sort": None, "scale": scale, "axis": {"labelAngle": 0, **axis}}


def compact(value: float) -> str:
    """Return a number with three digits, and a prefix from a thousand on: `81.6`, `1.23k`."""
    factor, prefix = next(((f, p) for f, p in _PREFIXES if value >= 0.9995 * f), (1.0, ""))
    number = value / factor
    if number >= 99.95 or number == 0:
        return f"{number:.0f}{prefix}"
    return (
        f"{number:.1f}{prefix}" if number >= 9.995 else f"{number:.2f}{prefix}" if number >= 0.01 else f"{number:.2e}"
    )
