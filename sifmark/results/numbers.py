"""Numbers as people read them: four significant digits, a unit with the prefix that suits, and what an interval adds.

Files for programs have all digits, in the unit of the metric.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

DIGITS = 4  # significant ones
FEWER_DIGITS = 3  # of a number with a wide interval
WIDE = 10.0  # percent: up to here an interval is `± 1.2 %`, above it stands in brackets
_NARROWEST = 0.01  # percent, that is shown
_LEAST_FRACTION = 1e-4
_ROUNDING = 1e-12  # of a value: a narrower interval is of equal values
_SMALLEST, _LARGEST = -4, 15  # powers of ten: beyond them a number is written with an exponent
_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


class _Prefix(NamedTuple):
    least: float  # the smallest value that has it, in the unit without a prefix
    factor: float
    unit: str


def _prefixes(unit: str, *prefixes: str) -> tuple[_Prefix, ...]:
    factors = {prefix: factor for factor, prefix in (*_SI, (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"))}
    return tuple(_Prefix(factors[prefix], factors[prefix], f"{prefix}{unit}") for prefix in prefixes)


# Prefixes by the unit, or by the part of it before a slash, the largest first. Memory bandwidth is given in GB/s and
# computing in TFLOP/s whatever the device, so that devices are compared in one unit.
_BY_UNIT = {
    "s": _prefixes("s", "", "m", "µ", "n"),
    "MiB": (_Prefix(1024.0, 1024.0, "GiB"), _Prefix(0.0, 1.0, "MiB")),
}
_BY_PART = {
    "bytes": _prefixes("B", "G", "M", "k", ""),
    "B": _prefixes("B", "G", "M", "k", ""),
    "FLOP": _prefixes("FLOP", "T", "G", "M", "k", ""),
    "operations": _prefixes("OP", "T", "G", "M", "k", ""),
    "J": (_Prefix(1e7, 1e6, "MJ"), _Prefix(1e4, 1e3, "kJ"), _Prefix(1e-3, 1.0, "J"), *_prefixes("J", "µ", "n", "p")),
}


@dataclass(frozen=True)
class Scale:
    """The unit in which numbers are shown, and its size in the unit of the metric."""

    factor: float
    unit: str

    def text(self, value: float, low: float | None = None, high: float | None = None) -> str:
        """Return a number with its interval in this unit, without the unit."""
        ends = (None if end is None else end / self.factor for end in (low, high))
        return format_interval(value / self.factor, *ends)


def scale_of(unit: str, values: Iterable[float]) -> Scale:
    """Return the scale in which the largest of some values has few digits: `GB/s` for `bytes/s`."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    part, slash, rest = unit.partition("/")
    prefixes = _BY_UNIT.get(unit) or _BY_PART.get(part)
    if not prefixes:
        return Scale(1.0, unit)
    unscaled = next(each for each in prefixes if each.factor == 1.0)
    chosen = next((each for each in prefixes if largest >= each.least), prefixes[-1]) if largest else unscaled
    return Scale(chosen.factor, f"{chosen.unit}{slash}{rest}")


def format_number(value: float, digits: int = DIGITS) -> str:
    """Return a number with separators of thousands."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    magnitude = _magnitude(value, digits)
    if not _SMALLEST <= magnitude <= _LARGEST:
        return f"{value:.{digits - 1}e}"
    return _fixed(value, digits - 1 - magnitude)


def format_interval(value: float, low: float | None, high: float | None) -> str:
    """Return `value ± 1.2 %`, or `value [low, high]` with a wide interval; without an interval the value.

    The percentage is that of the end further away: intervals of logarithms reach further up than down.
    """
    if low is None or high is None:
        return format_number(value)
    reach = max(high - value, value - low)
    if reach <= abs(value) * _ROUNDING:
        return f"{format_number(value)} ± 0 %"
    percent = 100 * reach / value if value > 0 else math.inf
    if percent <= WIDE:
        return f"{format_number(value)} ± {_percent(percent)} %"
    return f"{format_number(value, FEWER_DIGITS)} [{_end(low, value)}, {_end(high, value)}]"


def format_quantity(value: float, unit: str, low: float | None = None, high: float | None = None) -> str:
    """Return a number with its unit, with the prefix that suits, and its interval: `54.28 ms ± 1.2 %`."""
    scale = scale_of(unit, [value])
    number, _, interval = scale.text(value, low, high).partition(" ")
    return " ".join(filter(None, (number, "" if scale.unit == "1" else scale.unit, interval)))


def format_fraction(value: float) -> str:
    """Return a fraction in percent: `11.6 %`; one that is too small to matter is `< 0.01 %`."""
    if 0 < abs(value) < _LEAST_FRACTION:
        return f"< {100 * _LEAST_FRACTION:g} %"
    return f"{format_number(100 * value, FEWER_DIGITS)} %"


def split_interval(text: str) -> tuple[str, str]:
    """Return what stands before an interval, and the interval with all that follows; empty without one."""
    before, _, rest = text.partition(" ± ")
    if rest:
        return before, f"± {rest}"
    before, _, rest = text.partition(" [")
    return before, f"[{rest}" if rest else ""


def compact(text: str) -> str:
    """Return a text with intervals as narrow tables have them: `±1.2%`."""
    return text.replace("± ", "±").replace(" %", "%")


def abbreviated(text: str) -> str:
    """Return a text with its long units short, for a narrow terminal: `seq/s`."""
    return text.replace("sequences/", "seq/").replace("images/", "img/")


def format_scaled(value: float, unit: str) -> str:
    """Return a number with the decimal prefix that leaves one to three digits before the point: `8.178 GFLOP`."""
    factor, prefix = next(((f, p) for f, p in _SI if abs(value) >= f), (1.0, ""))
    return f"{format_number(value / factor)} {prefix}{unit}".rstrip()


def format_seconds(seconds: float) -> str:
    """Return a duration: `24 s`, `1 min 12 s`, `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _percent(percent: float) -> str:
    """Return a percentage with one decimal, and one below 0.1 with two."""
    return f"{percent:.1f}" if percent >= 0.095 else f"{max(percent, _NARROWEST):.2f}"


def _end(end: float, value: float) -> str:
    """Return an end of an interval with as many decimals as its value, but at least one digit of its own."""
    if end == 0 or not math.isfinite(end) or not value or not _SMALLEST <= _magnitude(end) <= _LARGEST:
        return format_number(end, FEWER_DIGITS)
    return _fixed(end, max(FEWER_DIGITS - 1 - _magnitude(value, FEWER_DIGITS), -_magnitude(end)))


def _fixed(value: float, places: int) -> str:
    """Return a number rounded to decimal places; negative ones round to tens, hundreds and so on."""
    return f"{round(value, places):,.{max(0, places)}f}"


def _magnitude(value: float, digits: int = DIGITS) -> int:
    """Return the power of ten of a number that is rounded to some digits: of 9.9999 it is 1."""
    return int(f"{value:.{digits - 1}e}".partition("e")[2])
