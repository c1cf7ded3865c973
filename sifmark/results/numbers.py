"""Numbers as people read them: no more digits than the interval warrants, and never fewer than three."""

import math

DIGITS = 4  # significant digits of a number without an interval
FEWEST_DIGITS, MOST_DIGITS = 3, 8  # of a number with an interval
_ROUNDING = 1e-12  # of a value: a narrower interval is of equal values
_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_SCALED_UNITS = ("FLOP/s",)
_SECONDS = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def format_number(value: float) -> str:
    """Return a number without an interval, with separators of thousands."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if _magnitude(value) < -DIGITS:
        return f"{value:.{DIGITS - 1}e}"
    return _fixed(value, DIGITS - 1 - _magnitude(value))


def format_interval(value: float, low: float | None, high: float | None) -> str:
    """Return `value [low, high]`, all rounded alike; without an interval the value."""
    if low is None or high is None:
        return format_number(value)
    places = _places(value, low, high)
    return f"{_fixed(value, places)} [{_fixed(low, places)}, {_fixed(high, places)}]"


def format_quantity(value: float, unit: str) -> str:
    """Return a number with its unit: seconds and large rates with a prefix, without a unit if it has none."""
    if unit == "s":
        return _prefixed(value, _SECONDS, unit)
    if unit in _SCALED_UNITS:
        return format_scaled(value, unit)
    return format_number(value) if unit in ("1", "") else f"{format_number(value)} {unit}"


def format_scaled(value: float, unit: str) -> str:
    """Return a number with the decimal prefix that leaves one to three digits before the point: `8.178 GFLOP`."""
    return _prefixed(value, _SI, unit)


def format_seconds(seconds: float) -> str:
    """Return a duration: `24 s`, `1 min 12 s`, `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _places(value: float, low: float, high: float) -> int:
    """Return the decimal places that show two digits of half the interval, but three to eight digits of the value."""
    half = (high - low) / 2
    spread = half > abs(value) * _ROUNDING
    wanted = 1 - _magnitude(half) if spread else DIGITS - 1 - _magnitude(value)
    return min(max(wanted, FEWEST_DIGITS - 1 - _magnitude(value)), MOST_DIGITS - 1 - _magnitude(value))


def _fixed(value: float, places: int) -> str:
    """Return a number rounded to decimal places; negative ones round to tens, hundreds and so on."""
    return f"{round(value, places):,.{max(0, places)}f}"


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value else 0


def _prefixed(value: float, prefixes: tuple[tuple[float, str], ...], unit: str) -> str:
    factor, prefix = next(((f, p) for f, p in prefixes if abs(value) >= f), (1.0, ""))
    return f"{format_number(value / factor)} {prefix}{unit}".rstrip()
