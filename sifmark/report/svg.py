"""Charts as SVG without a browser: scales, ticks, and six marks (line, dot, rule, bar, text, band).

A plot is drawn in two ways. In a page it is as wide as what is around it: places across are percentages, places down
are pixels, so that charts stretch and letters do not. For a paper it has a fixed width, and colours of its own.
There is no script and no style attribute: looks are classes of `palette`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal, NamedTuple

from sifmark.core.console import printable
from sifmark.report.palette import ARROW_DOWN, ARROW_UP, COLOURS, CROSS, DIAMOND, literal, style_of, system_class

Anchor = Literal["start", "middle", "end"]
FONT_SIZE = 12.0  # px
LONGEST_TEXT = 160  # characters of a text
PAPER_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
PADDING_STEP = 6  # px: margins of fluid plots are classes of CSS, a step apart
MOST_PADDING = 240  # px
LEAST_AREA = 60.0  # px across, of a plot in a file
_INNER = 1000  # units across of the box in which lines stretch
# Widths of characters in thousandths of the font's size, as Arial has them; others are as wide as a digit.
_WIDTHS = (
    (222, "ijl'"),
    (278, " !,./:;ftI[]|·"),
    (333, "()-r"),
    (500, "ckJsvxyz"),
    (722, "wCDHNRU"),
    (667, "ABEKPSVXY&"),
)
_WIDTH = {letter: width for width, letters in _WIDTHS for letter in letters} | {"m": 833, "M": 833, "W": 944, "%": 889}


@dataclass(frozen=True)
class Scale:
    """An axis: where values are between its ends, as shares."""

    low: float
    high: float
    is_log: bool = False

    def share(self, value: float) -> float:
        """Return where a value is: 0 at the low end, 1 at the high one."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def has(self, value: float) -> bool:
        return self.low <= value <= self.high

    def clamp(self, value: float) -> float:
        return min(max(value, self.low), self.high)


def scale_from_zero(values: Iterable[float], room: float = 1.08) -> Scale:
    """Return a linear scale from zero, or from the least of negative values, with room above the largest."""
    numbers = [0.0, *values]
    low, high = min(numbers) * room, max(numbers) * room
    return Scale(low, high if high > low else low + 1.0)


def scale_log(values: Iterable[float], room: float = 1.15) -> Scale:
    """Return a logarithmic scale of positive values, with room at both ends."""
    numbers = [value for value in values if value > 0] or [1.0]
    low, high = min(numbers), max(numbers)
    return Scale(low / room, high * room, is_log=True) if high > low else Scale(low / 2, high * 2, is_log=True)


def ticks_of(scale: Scale, most: int = 5) -> list[float]:
    """Return round numbers within a scale: steps of 1, 2, 2.5 or 5, or 1, 2, 5 of each power of ten."""
    return _log_ticks(scale, most) if scale.is_log else _linear_ticks(scale, most)


def _linear_ticks(scale: Scale, most: int) -> list[float]:
    raw = (scale.high - scale.low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10, 20) if factor * power >= raw * (1 - 1e-9))
    first = math.ceil(scale.low / step - 1e-9)
    ticks = [step * number for number in range(first, math.floor(scale.high / step + 1e-9) + 1)]
    return [float(f"{tick:.12g}") for tick in ticks]


def _log_ticks(scale: Scale, most: int) -> list[float]:
    powers = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [float(f"{step}e{power}") for power in powers for step in steps if scale.has(float(f"{step}e{power}"))]
        if len(ticks) <= most + 2:
            break
    else:
        ticks = ticks[:: math.ceil(len(ticks) / most)]
    return ticks if len(ticks) > 1 else _linear_ticks(Scale(scale.low, scale.high), most)


def tick_text(value: float) -> str:
    """Return a number on an axis: three digits, and a prefix from a thousand on: `0.25`, `32`, `1.5k`."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{prefix}"
    return f"{value:.3g}"


def thinned(places: Sequence[float], widths: Sequence[float], room: float = 6.0) -> list[int]:
    """Return which of some labels can stand beside each other: the last, and those before it that do not touch.

    `places` are their middles in ascending order and `widths` their widths, both in px.
    """
    kept: list[int] = []
    for number in reversed(range(len(places))):
        half = widths[number] / 2
        if not kept or places[number] + half + room <= places[kept[-1]] - widths[kept[-1]] / 2:
            kept.append(number)
    return kept[::-1]


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """Return about how wide a text is in px."""
    return sum(_WIDTH.get(letter, 1000 if ord(letter) > 0x2E80 else 610) for letter in text) * size / 1000


def spread(places: Sequence[float], gap: float, low: float = -math.inf, high: float = math.inf) -> list[float]:
    """Return places that are at least `gap` apart, in the same order and as near to where they were as possible.

    All are between `low` and `high` if there is room. Least squares: neighbours that would touch form blocks.
    """
    order = sorted(range(len(places)), key=lambda number: (places[number], number))
    blocks: list[list[float]] = []  # the sum and number of members, moved up by the gaps before them
    for rank, number in enumerate(order):
        blocks.append([places[number] - gap * rank, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    means = [total / count for total, count in blocks for _ in range(int(count))]
    last = high - gap * (len(places) - 1)
    moved = [max(min(mean, last), low) + gap * rank for rank, mean in enumerate(means)]
    return [place for _, place in sorted(zip(order, moved, strict=True))]


class Margins(NamedTuple):
    """Room around the area of a plot in px, where ticks, names and titles stand."""

    left: float = 44
    right: float = 12
    top: float = 20
    bottom: float = 42


MARGINS = Margins()
SHARES = Scale(0.0, 1.0)


@dataclass(frozen=True)
class Mark:
    """What all marks have. Places across are shares of the plot's width, places down px from its top."""

    look: str = field(kw_only=True)
    system: int | None = field(default=None, kw_only=True)  # its place among all; None of what is not of a system
    title: str = field(default="", kw_only=True)  # what a pointer shows


@dataclass(frozen=True)
class Line(Mark):
    """A line through points."""

    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Dot(Mark):
    """A dot in the shape of its system, or as a `path` around (0, 0)."""

    x: float
    y: float
    path: str | None = None
    radius: float = 4.0  # px, of a circle


@dataclass(frozen=True)
class Rule(Mark):
    """A straight line: of a grid, an axis, an interval."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True)
class Bar(Mark):
    """A rectangle from x1 to x2. A band is one that lies below the other marks."""

    x1: float
    x2: float
    y: float
    height: float


@dataclass(frozen=True)
class Text(Mark):
    """A text, moved by some px from its place, with its middle there if it is not on a line."""

    x: float
    y: float
    words: str
    anchor: Anchor = "start"
    dx: float = 0
    dy: float = 0
    on_line: bool = False


@dataclass
class Plot:
    """A chart: marks in an area with margins. `label` says what the picture shows: it is all that some readers get."""

    label: str
    height: float  # px of the area
    x: Scale
    y: Scale = SHARES
    margins: Margins = MARGINS
    marks: list[Mark] = field(default_factory=list)
    backdrop: list[Mark] = field(default_factory=list)  # below all others

    def across(self, value: float) -> float:
        return self.x.share(value)

    def down(self, value: float) -> float:
        """Return the place of a value on the axis up, in px from the top."""
        return self.height * (1 - self.y.share(value))

    def line(self, points: Iterable[tuple[float, float]], system: int | None, look: str = "line") -> None:
        self.marks.append(Line(tuple((self.across(x), self.down(y)) for x, y in points), look=look, system=system))

    def dot(
        self, x: float, y: float, system: int | None, title: str = "", look: str = "dot", path: str | None = None
    ) -> None:
        self.marks.append(Dot(self.across(x), self.down(y), path, look=look, system=system, title=title))

    def whisker(self, x: float, low: float, high: float, system: int | None) -> None:
        """Draw an interval upright; what reaches out of the area is cut off, and has an arrow there."""
        ends = (self.down(self.y.clamp(low)), self.down(self.y.clamp(high)))
        self.marks.append(Rule(self.across(x), ends[0], self.across(x), ends[1], look="whisker", system=system))
        for value, end, arrow in zip((low, high), ends, (ARROW_DOWN, ARROW_UP), strict=True):
            if not self.y.has(value):
                self.marks.append(Dot(self.across(x), end, arrow, look="whisker", system=system))

    def failed(self, x: float, y: float, system: int | None, title: str) -> None:
        """Draw a cross where a run failed: at a value across, at px down."""
        self.marks.append(Dot(self.across(x), y, CROSS, look="failed", system=system, title=title))

    def published(self, x: float, y: float, title: str) -> None:
        """Draw a hollow diamond: a published figure."""
        self.dot(x, y, None, title, "hollow", DIAMOND)

    def level(self, y: float, look: str = "ideal", words: str = "", system: int | None = None) -> None:
        """Draw a line across the whole area at a value, with words above it."""
        self.backdrop.append(Rule(0, self.down(y), 1, self.down(y), look=look, system=system))
        if words:
            note = "hint" if system is None else "note"
            self.marks.append(Text(0, self.down(y), words, dx=4, dy=-4, on_line=True, look=note, system=system))

    def grid(self, ticks: Sequence[float], words: Callable[[float], str] = tick_text, title: str = "") -> None:
        """Draw the axis up: a line across and a number for each tick, and the title above."""
        for tick in ticks:
            self.backdrop.append(Rule(0, self.down(tick), 1, self.down(tick), look="grid"))
            self.backdrop.append(Text(0, self.down(tick), words(tick), "end", dx=-7, look="axis"))
        if title:
            left = -self.margins.left
            self.backdrop.append(Text(0, -self.margins.top + 6, title, dx=left, look="axis"))

    def ticks(
        self,
        ticks: Sequence[float],
        words: Callable[[float], str] = tick_text,
        title: str = "",
        width: float = 210,  # px of the narrowest area in which labels must not touch
    ) -> None:
        """Draw the axis across: a line, a tick and a number for each, as far as there is room, and the title below."""
        self.backdrop.append(Rule(0, self.height, 1, self.height, look="domain"))
        labels = [words(tick) for tick in ticks]
        named = thinned([self.across(tick) * width for tick in ticks], [text_width(label) for label in labels])
        for number, (tick, label) in enumerate(zip(ticks, labels, strict=True)):
            x = self.across(tick)
            self.backdrop.append(Rule(x, self.height, x, self.height + 4, look="domain"))
            if number in named:
                self.backdrop.append(Text(x, self.height + 17, label, "middle", on_line=True, look="axis"))
        if title:
            self.backdrop.append(Text(0.5, self.height + 36, title, "middle", on_line=True, look="axis"))

    def names(self, names: Sequence[tuple[float, float, int | None, str]], gap: float = 14.0) -> None:
        """Write names beside the ends of lines, at values across and up, moved apart where they would touch."""
        places = spread([self.down(y) for _, y, _, _ in names], gap, 0, self.height)
        for (x, _, system, words), y in zip(names, places, strict=True):
            self.marks.append(Text(self.across(x), y, words, dx=9, look="end", system=system))

    def fluid(self) -> str:
        """Return the plot for a page with the style sheets of `palette` and `fluid_style`."""
        left, right = (_padding(self.margins.left), _padding(self.margins.right))
        top, whole = self.margins.top, self.height + self.margins.top + self.margins.bottom
        body = "".join(_fluid(mark, self.height) for mark in (*self.backdrop, *self.marks))
        return (
            f'<div class="plot pl{left} pr{right}"><svg width="100%" height="{_n(whole)}" role="img"'
            f' aria-label="{_words(self.label, 400)}"><svg y="{_n(top)}">{body}</svg></svg></div>'
        )

    def fixed(self, width: float, scale: float = 1.0) -> str:
        """Return the plot as a file of its own, `width` px wide unless its margins need more, in light colours.

        With a `scale` of 0.75 its size is in points: what makes PDF of it takes a px for a point.
        """
        height = self.height + self.margins.top + self.margins.bottom
        inner = max(width - self.margins.left - self.margins.right, LEAST_AREA)
        width = inner + self.margins.left + self.margins.right
        body = "".join(_fixed(mark, inner) for mark in (*self.backdrop, *self.marks))
        size = f'width="{_n(width * scale)}" height="{_n(height * scale)}"'
        corner, area = (_n(-self.margins.left), _n(-self.margins.top)), (_n(width), _n(height))
        box, paper = " ".join((*corner, *area)), COLOURS["bg"].light
        sheet = f'<rect x="{corner[0]}" y="{corner[1]}" width="{area[0]}" height="{area[1]}" fill="{paper}"/>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="{box}" font-family="{PAPER_FONT}"'
            f' font-size="{_n(FONT_SIZE)}"><title>{_words(self.label, 400)}</title>{sheet}{body}</svg>\n'
        )


def fluid_style() -> str:
    """Return the CSS of fluid plots: margins, and lines that keep their width."""
    steps = range(0, MOST_PADDING + 1, PADDING_STEP)
    paddings = "".join(f".pl{step}{{padding-left:{step}px}}.pr{step}{{padding-right:{step}px}}" for step in steps)
    return (
        "svg{display:block;overflow:visible}.plot svg text{font-variant-numeric:tabular-nums}"
        f".plot polyline{{vector-effect:non-scaling-stroke;stroke-linejoin:round}}{paddings}"
    )


def _padding(room: float) -> int:
    """Return the class of a margin: the step that is wide enough."""
    return min(math.ceil(room / PADDING_STEP) * PADDING_STEP, MOST_PADDING)


def _fluid(mark: Mark, height: float) -> str:
    def across(share: float) -> str:
        return f"{_n(100 * share)}%"

    if isinstance(mark, Line):
        points = " ".join(f"{_n(x * _INNER)},{_n(y)}" for x, y in mark.points)
        box = f'viewBox="0 0 {_INNER} {_n(height)}" preserveAspectRatio="none" width="100%" height="{_n(height)}"'
        return f'<svg {box}><polyline {_class(mark)} points="{points}"/></svg>'
    return _drawn(mark, across, _class(mark))


def _fixed(mark: Mark, width: float) -> str:
    attributes = _attributes(literal(mark.look, mark.system))
    if isinstance(mark, Line):
        points = " ".join(f"{_n(x * width)},{_n(y)}" for x, y in mark.points)
        return f'<polyline {attributes} stroke-linejoin="round" points="{points}"/>'
    return _drawn(mark, lambda share: _n(share * width), attributes)


def _drawn(mark: Mark, across: Callable[[float], str], look: str) -> str:
    """Return a mark as an element, whatever its places across are."""
    title = f"<title>{_words(mark.title, 400)}</title>" if mark.title else ""
    if isinstance(mark, Dot):
        path = style_of(mark.system or 0).shape if mark.path is None else mark.path
        if not path:
            return f'<circle {look} cx="{across(mark.x)}" cy="{_n(mark.y)}" r="{_n(mark.radius)}">{title}</circle>'
        place = f'x="{across(mark.x)}" y="{_n(mark.y)}" overflow="visible"'
        return f'<svg {place}><path {look} d="{path}">{title}</path></svg>'
    if isinstance(mark, Rule):
        ends = f'x1="{across(mark.x1)}" y1="{_n(mark.y1)}" x2="{across(mark.x2)}" y2="{_n(mark.y2)}"'
        return f"<line {look} {ends}>{title}</line>" if title else f"<line {look} {ends}/>"
    if isinstance(mark, Bar):
        place = f'x="{across(mark.x1)}" y="{_n(mark.y)}" width="{across(max(0.0, mark.x2 - mark.x1))}"'
        return f'<rect {look} {place} height="{_n(mark.height)}">{title}</rect>'
    return _text(mark, across, look) if isinstance(mark, Text) else ""


def _text(mark: Text, across: Callable[[float], str], look: str) -> str:
    moved = {"dx": mark.dx, "dy": mark.dy if mark.on_line else mark.dy + 4}  # 4 px: half of a capital's height
    shift = "".join(f' {name}="{_n(value)}"' for name, value in moved.items() if value)
    anchor = "" if mark.anchor == "start" else f' text-anchor="{mark.anchor}"'
    place = f'x="{across(mark.x)}" y="{_n(mark.y)}"{shift}{anchor}'
    return f"<text {look} {place}>{_words(mark.words)}</text>"


def _class(mark: Mark) -> str:
    return f'class="m-{mark.look} {system_class(mark.system)}"'


def _attributes(attributes: Mapping[str, str]) -> str:
    return " ".join(f'{name}="{value}"' for name, value in attributes.items())


def _words(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return untrusted text for an element or attribute: printable, on one line, escaped, not too long."""
    line = printable(text)
    return escape(line if len(line) <= longest else f"{line[: longest - 1]}…")


def _n(number: float) -> str:
    """Return a number with as few characters as a hundredth of a px needs."""
    text = f"{number:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
