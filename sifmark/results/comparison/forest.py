"""Ratios with their intervals as characters on a logarithmic scale, a line for each configuration."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sifmark.core.console import text_width
from sifmark.results.numbers import format_number

WIDTH = 36  # columns of a scale
_EDGE = 1.02  # by which a scale is wider than what is on it
_LABEL_DIGITS = 2
Place = Callable[[float], int]


@dataclass(frozen=True)
class Dot:
    """A ratio of which more is better, and the letter of its system."""

    letter: str
    value: float
    low: float | None = None
    high: float | None = None


def letters_of(names: Sequence[str]) -> list[str]:
    """Return a letter for each name: its first one if that is no other's, else a digit."""
    first = [name[:1].lower() for name in names]
    alone = [letter.isalpha() and text_width(letter) == 1 and first.count(letter) == 1 for letter in first]
    digits = [str(number % 10) for number in range(1, len(names) + 1)]
    return [first[number] if alone[number] else digits[number] for number in range(len(names))]


def named_letters(names: Sequence[str]) -> list[str]:
    """Return what the letters of systems mean: `b beta`."""
    return [f"{letter} {name}" for letter, name in zip(letters_of(names), names, strict=True)]


def forest(lines: Sequence[Sequence[Dot]], blocks: bool, width: int = WIDTH) -> list[str]:
    """Return the head of a scale, and each line of ratios on it; nothing if there are none.

    `blocks` says whether other characters than those of ASCII can be shown.
    """
    ends = [end for dots in lines for dot in dots for end in (dot.value, dot.low, dot.high) if end]
    if not ends:
        return []
    low, high = min(1.0, *ends) / _EDGE, max(1.0, *ends) * _EDGE
    span = math.log(high / low)

    def place(value: float) -> int:
        return min(width - 1, int(math.log(value / low) / span * width))

    return [_head(low, high, place(1.0), width), *(_line(dots, place, width, blocks) for dots in lines)]


def _head(low: float, high: float, one: int, width: int) -> str:
    left, right = (f"{format_number(end, _LABEL_DIGITS)}x" for end in (low, high))
    head = [" "] * width
    for text, begin in ((left, 0), (right, width - len(right)), ("1x", min(one, width - 2))):
        head[begin : begin + len(text)] = text if text == "1x" or abs(begin - one) > len(text) + 1 else " " * len(text)
    return "".join(head)[:width]


def _line(dots: Sequence[Dot], place: Place, width: int, blocks: bool) -> str:
    line = ["·" if blocks else "."] * width
    line[place(1.0)] = "│" if blocks else "|"
    for dot in dots:
        if dot.low and dot.high and place(dot.high) - place(dot.low) > 1:
            begin, end = place(dot.low), place(dot.high)
            line[begin : end + 1] = ["(", *"-" * (end - begin - 1), ")"]
    for dot in dots:
        line[place(dot.value)] = dot.letter
    return "".join(line)
