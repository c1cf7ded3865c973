"""The cells of a comparison for people, with as many words as there is room for."""

from collections.abc import Sequence
from enum import IntEnum

from sifmark.core.console import has_room, text_width
from sifmark.results.catalogue import Direction, column_of, direction_of
from sifmark.results.comparison.columns import CPU, DEVICE_NAME, Line
from sifmark.results.comparison.intervals import Ratio
from sifmark.results.comparison.observation import CONCURRENCY, PRECISION
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.comparison.scaling import BATCH, DEVICES
from sifmark.results.comparison.tables import TableStyle, factor_text, ratio_text
from sifmark.results.marks import letters_of_marks, unpublished
from sifmark.results.numbers import Scale, abbreviated, compact, format_number, split_interval

ROOMY = 100  # columns of a terminal from which units are whole words
# Names of columns on a terminal with room for words, and with less.
_HEADS = {
    DEVICES: ("devices", "dev"),
    BATCH: ("batch", "batch"),
    CONCURRENCY: ("clients", "cli"),
    PRECISION: ("precision", "prec"),
    DEVICE_NAME: ("device", "device"),
    CPU: ("CPU", "CPU"),
}
_STATES = {"out_of_memory": "OOM", "timed_out": "timeout"}
_BETTER, _WORSE, _MORE, _LESS, _SAME, _UNKNOWN = "+-><=?"
SIGNS = {
    _BETTER: "better",
    _WORSE: "worse",
    _MORE: "more",
    _LESS: "less",
    _SAME: "no difference shown",
    _UNKNOWN: "cannot tell",
}
Parts = tuple[str, ...]  # of a cell: numbers end together in the first of them and in the one of a ratio
_RATIO_PART = 4


class Detail(IntEnum):
    """How much a cell says."""

    FULL = 0  # all words, with what one cannot tell and why
    WORDS = 1
    SIGNS = 2
    BARE = 3  # signs, and ratios below numbers, or without intervals


class CellWriter:
    """Writes cells at one level of detail, and keeps which signs and letters of marks it used."""

    def __init__(self, style: TableStyle, detail: Detail) -> None:
        self.style, self.detail = style, detail
        self.signs: set[str] = set()
        self.letters: set[str] = set()

    def value(self, line: Line, number: int, metric: str, scale: Scale, uniform: int) -> Parts | str:
        row = line.cells.get(number)
        if row is None:
            state = line.failed.get(number, "")
            words = state.replace("_", " ")
            return (words if self.detail <= Detail.WORDS else _STATES.get(state, words)) or "-"
        mean, count = row.means[metric], len(row.observations)
        if mean.value is None:
            return "-"
        value, interval = split_interval(scale.text(mean.value, mean.low, mean.high))
        part = f"({mean.count} of {count})" if mean.count < count else ""
        repeats = "" if uniform or self.detail >= Detail.SIGNS else f"n={mean.count}"
        return value, self.short(interval), " ".join(filter(None, (part, repeats))), self._marks_of(row)

    def ratio(self, row: RepeatGroup | None, metric: str, unit: str, below: bool = False) -> Parts:
        """Return a ratio; one `below` its number always has room for an interval."""
        ratio = row.ratios.get(metric) if row else None
        if ratio is None or ratio.value is None:
            return "" if self.detail >= Detail.SIGNS else "-", "", ""
        if self.detail < Detail.SIGNS:
            factor, _, words = ratio_text(ratio, unit, brief=self.detail is Detail.WORDS).partition(" ")
            return factor, self.short(words), ""
        return self._signed(ratio, metric, below or self.detail is Detail.SIGNS)

    def _signed(self, ratio: Ratio, metric: str, whole: bool) -> Parts:
        """Return a ratio with a sign in place of its verdict."""
        sign = _sign(ratio, metric)
        self.signs.add(sign)
        if ratio.low is None:
            return f"{format_number(ratio.value or 0.0)}x", "", sign
        factor, _, interval = factor_text(ratio).partition(" ")
        return factor, self.short(interval) if whole else "", sign

    def _marks_of(self, row: RepeatGroup) -> str:
        """Return the letters of the reasons not to publish a number."""
        marks = unpublished(code for each in row.observations for code in each.marks)
        self.letters.update(mark.symbol for mark in marks)
        return letters_of_marks(marks)

    def head(self, name: str) -> str:
        if self.detail is Detail.FULL:
            return column_of(name)
        if name in _HEADS:
            return _HEADS[name][self.detail >= Detail.SIGNS]
        return column_of(name).rpartition(".")[2] if self.detail >= Detail.SIGNS else column_of(name)

    def short(self, text: str) -> str:
        if self.style.width is None:
            return text
        return compact(abbreviated(text) if self.style.width < ROOMY else text)

    def padded(self, head: str, cells: Sequence[Parts | str]) -> list[str]:
        """Return a column with the parts of its cells below each other."""
        if not self.style.plain:
            return [head, *(cell if isinstance(cell, str) else " ".join(filter(None, cell)) for cell in cells)]
        whole = [cell for cell in cells if isinstance(cell, tuple)]
        widths = [max(map(text_width, part)) for part in zip(*whole, strict=True)]
        texts = [
            cell.rjust(widths[0] if widths else 0) if isinstance(cell, str) else _joined(cell, widths) for cell in cells
        ]
        return [head, *texts]

    def has_room(self, table: Sequence[Sequence[str]], besides: int = 0) -> bool:
        return has_room(table, self.style.width, besides)


def _joined(parts: Parts, widths: Sequence[int]) -> str:
    """Return parts at their places; the first one and that of a ratio end together."""
    texts = []
    for number, (part, width) in enumerate(zip(parts, widths, strict=True)):
        blanks = " " * (width - text_width(part))
        if width:
            texts.append(blanks + part if number in (0, _RATIO_PART) else part + blanks)
    return " ".join(texts).rstrip()


def _sign(ratio: Ratio, metric: str) -> str:
    verdict, direction = ratio.verdict, direction_of(metric)
    if verdict not in ("more", "less"):
        return _UNKNOWN if verdict == "cannot tell" else _SAME
    if direction is Direction.NONE:
        return _MORE if verdict == "more" else _LESS
    return _BETTER if (verdict == "more") is (direction is Direction.HIGHER) else _WORSE
