"""How charts look: colours on a light and on a dark page, the colour, shape and dash of each system, looks of marks.

The six colours stay apart in protanopia, deuteranopia and tritanopia (`tests/unit/report/test_palette.py`).
"""

from dataclasses import dataclass
from typing import NamedTuple

FONT = '-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"Liberation Sans",sans-serif'
MOST_SYSTEMS = 24  # that colour and shape together distinguish: the 25th looks like the first


class Colour(NamedTuple):
    """A colour on a light and on a dark page."""

    light: str
    dark: str


# By the name of the variable of CSS: what is not of a system.
COLOURS = {
    "bg": Colour("#ffffff", "#14171a"),
    "ink": Colour("#15181c", "#eceef0"),
    "muted": Colour("#59616b", "#a3abb5"),
    "line": Colour("#e2e5e9", "#2b3036"),
    "soft": Colour("#f5f6f8", "#1b1f24"),
    "mid": Colour("#8b939d", "#6b737d"),
    "link": Colour("#0a5796", "#7cc0f5"),
    "warn": Colour("#8a5200", "#f3c46c"),
    "warn-bg": Colour("#fff6e5", "#2a2213"),
    "warn-line": Colour("#f0c878", "#6b521c"),
    "ahead": Colour("#eef6f1", "#17241d"),
}
# Of systems: the first three are Okabe and Ito's. Words have a darker or lighter twin, for a contrast of 4.5:1.
SYSTEMS = (
    Colour("#0072b2", "#3f9fe0"),
    Colour("#d55e00", "#ee7b2d"),
    Colour("#009e73", "#2edeb6"),
    Colour("#630b3d", "#a36776"),
    Colour("#074801", "#fee400"),
    Colour("#0201af", "#e8d6ff"),
)
WORDS = (
    Colour("#005f96", "#6db8ec"),
    Colour("#ad4b00", "#f39a5c"),
    Colour("#00745a", "#2edeb6"),
    Colour("#630b3d", "#bd8c98"),
    Colour("#074801", "#fee400"),
    Colour("#0201af", "#e8d6ff"),
)
# Paths around (0, 0), about 8 px wide. Eight shapes and six colours repeat together only after 24 systems.
SHAPES = (
    "",  # a circle
    "M-3.7,-3.7H3.7V3.7H-3.7Z",
    "M0,-4.8L4.6,3.4H-4.6Z",
    "M-1.5,-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z",
    "M0,4.8L4.6,-3.4H-4.6Z",
    "M0,-5.4L1.3,-1.7H5.1L2.1,.6L3.2,4.4L0,2.1L-3.2,4.4L-2.1,.6L-5.1,-1.7H-1.3Z",
    "M-3.4,-4.6L4.8,0L-3.4,4.6Z",
    "M0,-4.8L4.6,-1.5L2.8,3.9H-2.8L-4.6,-1.5Z",
)
DIAMOND, CROSS = "M0,-5.2L5.2,0L0,5.2L-5.2,0Z", "M-4,-4L4,4M4,-4L-4,4"  # published figures, and runs that failed
ARROW_UP, ARROW_DOWN = "M-4,6L0,0L4,6", "M-4,-6L0,0L4,-6"  # where an interval reaches further than its chart
DASHES = ("none", "7 3", "2 2", "9 3 2 3")

OWN, OWN_WORDS, OWN_DASH = "c", "t", "d"  # what a system has: the colour of marks and of words, and its dash
# Attributes by the look of a mark. A colour is a name of COLOURS, or what the mark's system has.
LOOKS: dict[str, dict[str, str]] = {
    "grid": {"stroke": "line"},
    "domain": {"stroke": "mid"},
    "ideal": {"stroke": "muted", "stroke-dasharray": "4 3"},
    "limit": {"stroke": OWN, "stroke-dasharray": "5 3", "stroke-width": "1.2"},
    "one": {"stroke": OWN, "stroke-width": "1.6"},
    "line": {"fill": "none", "stroke": OWN, "stroke-width": "2", "stroke-dasharray": OWN_DASH},
    "whisker": {"fill": "none", "stroke": OWN, "stroke-width": "1.6"},
    "wide": {"stroke": OWN, "stroke-width": "2.4"},
    "dot": {"fill": OWN, "stroke": "bg", "stroke-width": "1.2"},
    "hollow": {"fill": "bg", "stroke": OWN, "stroke-width": "2"},
    "small": {"fill": OWN, "fill-opacity": ".45"},
    "interval": {"fill": OWN, "fill-opacity": ".16"},
    "unchanged": {"stroke": "muted", "stroke-dasharray": "2 3"},
    "failed": {"fill": "none", "stroke": OWN, "stroke-width": "2.2"},
    "bar": {"fill": OWN, "fill-opacity": ".8"},
    "part-1": {"fill": OWN},
    "part-2": {"fill": OWN, "fill-opacity": ".35"},
    "part-3": {"fill": OWN, "fill-opacity": ".65"},
    "part-4": {"fill": OWN, "fill-opacity": ".45"},
    "part-5": {"fill": OWN, "fill-opacity": ".2"},
    "cell-1": {"fill": OWN, "fill-opacity": ".08"},
    "cell-2": {"fill": OWN, "fill-opacity": ".2"},
    "cell-3": {"fill": OWN, "fill-opacity": ".32"},
    "cell-4": {"fill": OWN, "fill-opacity": ".44"},
    "ahead": {"fill": "ahead"},
    "axis": {"fill": "muted"},
    "hint": {"fill": "muted", "font-size": "11.5px"},
    "note": {"fill": OWN_WORDS, "font-size": "11.5px"},
    "name": {"fill": OWN_WORDS, "font-size": "12.5px", "font-weight": "600"},
    "end": {  # a name on the drawing, apart from lines behind it
        "fill": OWN_WORDS,
        "font-size": "12.5px",
        "font-weight": "600",
        "paint-order": "stroke",
        "stroke": "bg",
        "stroke-width": "3",
    },
    "value": {"fill": "ink", "font-size": "12.5px"},
}
_COLOURED = ("fill", "stroke")


@dataclass(frozen=True)
class SystemStyle:
    """How a system looks in all charts."""

    colour: Colour
    words: Colour
    shape: str
    dash: str


def style_of(system: int) -> SystemStyle:
    colour = system % len(SYSTEMS)
    return SystemStyle(SYSTEMS[colour], WORDS[colour], SHAPES[system % len(SHAPES)], DASHES[system % len(DASHES)])


def system_class(system: int | None) -> str:
    """Return the class of CSS that a system has everywhere on a page; that of what belongs to none."""
    return "y0" if system is None else f"y{system % MOST_SYSTEMS + 1}"


def literal(look: str, system: int | None) -> dict[str, str]:
    """Return the attributes of a look with the colours of a light page, as files for papers need them."""
    style = None if system is None else style_of(system)
    muted = COLOURS["muted"].light
    own = {
        OWN: style.colour.light if style else muted,
        OWN_WORDS: style.words.light if style else muted,
        OWN_DASH: style.dash if style else "none",
    }
    named = {name: colour.light for name, colour in COLOURS.items()} | own
    return {key: named.get(value, value) for key, value in LOOKS[look].items()}


def style_sheet() -> str:
    """Return the CSS of colours and of marks: light, dark where a reader asks for it on a screen, light on paper."""
    looks = "".join(f".m-{look}{{{_rules(attributes)}}}" for look, attributes in LOOKS.items())
    return "\n".join(
        (
            f":root{{color-scheme:light dark;{_variables(0)}}}",
            f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(1)}}}}}",
            ".y0{--c:var(--muted);--t:var(--muted);--d:none}",
            "".join(map(_system_rule, range(MOST_SYSTEMS))),
            f"svg text{{font:12px {FONT};fill:var(--ink)}}",
            looks,
        )
    )


def filter_rules(systems: int) -> str:
    """Return the CSS by which a box that is not checked hides its system: `<input id="show-y2">` and class `y2`."""
    places = range(min(systems, MOST_SYSTEMS))
    return "".join(
        f"body:has(#show-{name}:not(:checked)) main .{name}{{display:none}}" for name in map(system_class, places)
    )


def _variables(theme: int) -> str:
    named = [(name, colour[theme]) for name, colour in COLOURS.items()]
    named += [(f"s{place}", colour[theme]) for place, colour in enumerate(SYSTEMS)]
    named += [(f"w{place}", colour[theme]) for place, colour in enumerate(WORDS)]
    return "".join(f"--{name}:{value};" for name, value in named)


def _system_rule(system: int) -> str:
    colour = system % len(SYSTEMS)
    return f".{system_class(system)}{{--c:var(--s{colour});--t:var(--w{colour});--d:{style_of(system).dash}}}"


def _rules(attributes: dict[str, str]) -> str:
    def value(key: str, text: str) -> str:
        own = (key in _COLOURED and text != "none") or text == OWN_DASH
        return f"var(--{text})" if own else text

    return ";".join(f"{key}:{value(key, text)}" for key, text in attributes.items())
