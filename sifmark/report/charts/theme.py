"""How charts look: colours on a light and on a dark page, shapes and dashes of systems, fonts and sizes.

Specifications use the light colours. `render` replaces them by variables of CSS, which `page_style` defines.
"""

from dataclasses import dataclass
from typing import Any

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
FONT_SIZE = 12
WIDTH, HEIGHT = 340, 220  # of the area between the axes; at the width of a column, letters have 7 points
_VARIABLE = "--chart-"


@dataclass(frozen=True)
class Colour:
    """A colour on a light and on a dark page, with the name of its variable."""

    name: str
    light: str
    dark: str


@dataclass(frozen=True)
class Style:
    """How a chart draws a line: with its colour, shape and dash, of which each differs from those of its neighbours."""

    colour: Colour
    shape: str
    dash: tuple[int, ...]


INK = Colour("ink", "#1c1c1c", "#ececec")
MUTED = Colour("muted", "#5f5f5f", "#ababab")  # axes, reference lines and what is not ours
GRID = Colour("grid", "#e2e2e2", "#373737")
WARNING = Colour("warning", "#b3261e", "#ff8a80")
PAPER = Colour("paper", "#ffffff", "#111111")  # inside of hollow marks

# Okabe and Ito's, of which orange, sky blue and yellow are darker on white, and blue and black lighter on black.
SYSTEMS = (
    Colour("1", "#0072b2", "#3b9fe0"),
    Colour("2", "#d55e00", "#ee7a24"),
    Colour("3", "#009e73", "#00b886"),
    Colour("4", "#b8578f", "#dc90bb"),
    Colour("5", "#b87a00", "#e69f00"),
    Colour("6", "#2b8fc9", "#7cc6f0"),
    Colour("7", "#857900", "#f0e442"),
    Colour("8", "#333333", "#d8d8d8"),
)
COLOURS = (INK, MUTED, GRID, WARNING, PAPER, *SYSTEMS)
# Triangles that point down are failures, and diamonds published figures.
SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "cross",
    "triangle-right",
    "M0,-1L0.3,-0.31L1,-0.31L0.45,0.12L0.65,0.85L0,0.42L-0.65,0.85L-0.45,0.12L-1,-0.31L-0.3,-0.31Z",  # a star
    "triangle-left",
    "M0,-1L0.95,-0.31L0.59,0.81L-0.59,0.81L-0.95,-0.31Z",  # a pentagon
)
FAILED_SHAPE, PUBLISHED_SHAPE = "triangle-down", "diamond"
DASHES = ((1, 0), (6, 3), (2, 2), (9, 3, 2, 3), (12, 3), (4, 2), (9, 3, 2, 3, 2, 3), (1, 3))


NEUTRAL = Style(MUTED, SHAPES[0], DASHES[0])  # of published runs


def style_of(system: int, line: int | None = None) -> Style:
    """Return the style of a system by its place among all; of one of its lines, with the shape and dash of that line.

    The colour stays with the system in all charts, as do shape and dash where it has one line.
    """
    number = system if line is None else line
    turn, place = divmod(number, len(SHAPES))
    return Style(SYSTEMS[system % len(SYSTEMS)], SHAPES[(place + turn) % len(SHAPES)], DASHES[place])


def page_style() -> str:
    """Return the CSS that charts of `page_svg` need: their colours, light on paper, and dark where a reader asks."""
    light = "".join(f"{_VARIABLE}{colour.name}:{colour.light};" for colour in COLOURS)
    dark = "".join(f"{_VARIABLE}{colour.name}:{colour.dark};" for colour in COLOURS)
    focus = f".chart a:focus-visible{{outline:2px solid var({_VARIABLE}ink)}}"
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{focus}\n"


def variable(colour: Colour) -> str:
    """Return a colour as the value of an attribute of SVG that follows the page."""
    return f"var({_VARIABLE}{colour.name},{colour.light})"


def config() -> dict[str, Any]:
    """Return what all charts have in common, as Vega-Lite's configuration. One weight of font keeps files small."""
    letters = {"labelFont": FONT, "titleFont": FONT, "labelFontSize": FONT_SIZE, "titleFontSize": FONT_SIZE}
    plain = {"titleFontWeight": "normal", "labelColor": INK.light, "titleColor": INK.light}
    return {
        "background": None,
        "font": FONT,
        "padding": 4,
        "view": {"continuousWidth": WIDTH, "continuousHeight": HEIGHT, "discreteWidth": WIDTH, "stroke": None},
        "axis": {
            **letters,
            **plain,
            "domainColor": MUTED.light,
            "gridColor": GRID.light,
            "labelLimit": 120,
            "tickColor": MUTED.light,
            "titlePadding": 8,
        },
        "axisX": {"grid": False, "labelFlush": False},
        "header": {**letters, **plain},
        "legend": {
            **letters,
            **plain,
            "orient": "top",
            "direction": "horizontal",
            "labelLimit": WIDTH - 30,
            "columnPadding": 12,
            "rowPadding": 2,
            "offset": 10,
            "symbolSize": 60,
            "title": None,
        },
        "title": {
            "font": FONT,
            "fontSize": FONT_SIZE - 1,
            "fontWeight": "normal",
            "color": WARNING.light,
            "orient": "bottom",
            "anchor": "start",
            "offset": 8,
        },
        "concat": {"spacing": 14},
        "line": {"strokeWidth": 1.8},
        "point": {"opacity": 1},
        "text": {"font": FONT, "fontSize": FONT_SIZE, "color": INK.light},
    }
