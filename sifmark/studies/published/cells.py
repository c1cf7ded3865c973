"""Cells of published tables: numbers as documents print them."""

import re

from sifmark.studies.published.figures import Bound, PrintedNumber

# A number with commas or blanks between thousands, or without.
_NUMBER = r"\d{1,3}(?:[,\u00a0\u202f ]\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_CELL = re.compile(
    rf"(?P<words>[^\d]*?)(?P<low>{_NUMBER})\s?(?P<low_unit>%|[A-Za-z/]*)"
    rf"(?:\s?(?:[-\u2013]|to|and)\s(?P<high>{_NUMBER})|[-\u2013](?P<close>{_NUMBER}))?(?P<unit>[^\d]*)"
)
# Words before a number, and what they say of it.
_BOUNDS = {
    "": Bound.EXACT,
    "about": Bound.ABOUT,
    "approximately": Bound.ABOUT,
    "around": Bound.ABOUT,
    "nearly": Bound.ABOUT,
    "≈": Bound.ABOUT,
    "more than": Bound.AT_LEAST,
    "over": Bound.AT_LEAST,
    "less than": Bound.AT_MOST,
    "upto": Bound.AT_MOST,
    "within": Bound.AT_MOST,
}
_WORDS = {"double": "2", "higher": "more than 1"}


def parse_cell(text: str) -> PrintedNumber:
    """Return the number that a cell prints: `1,862.9`, `3.5-3.9x`, `over 5x`. Raises ValueError for anything else."""
    for word, number in _WORDS.items():
        text = text.replace(word, number)
    match = _CELL.fullmatch(text.strip())
    if match is None or (words := match["words"].strip().lower()) not in _BOUNDS:
        raise ValueError(f"{text!r} is not a number as documents print them")
    low = _value(match["low"])
    if (end := match["high"] or match["close"]) is None:
        return PrintedNumber(low, low, _BOUNDS[words])
    high = _value(end)
    if high < low:
        raise ValueError(f"{text!r} is not a range from a smaller to a larger number")
    return PrintedNumber(low, high, Bound.RANGE)


def _value(text: str) -> float:
    return float(re.sub(r"[^\d.]", "", text))
