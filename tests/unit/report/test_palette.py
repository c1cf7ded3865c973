"""Colours and shapes of systems: told apart by everyone, legible on both pages, and the same on all charts."""

import math
from itertools import combinations, product

import pytest

from sifmark.report import palette
from sifmark.report.palette import COLOURS, SYSTEMS, WORDS, Colour

RGB = tuple[float, float, float]
# Machado, Oliveira and Fernandes 2009, severity 1: linear RGB as people without one kind of cones see it.
VISION: dict[str, tuple[RGB, RGB, RGB]] = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
# CIEDE2000; 2.3 is what people just notice side by side. One in ten thousand lacks the third kind of cones.
LEAST = {"normal": 20.0, "protanopia": 16.0, "deuteranopia": 16.0, "tritanopia": 12.0}


def linear(colour: str) -> RGB:
    def part(place: int) -> float:
        share = int(colour[place : place + 2], 16) / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    return part(1), part(3), part(5)


def seen(colour: str, vision: str) -> RGB:
    rgb = linear(colour)
    red, green, blue = (min(1.0, max(0.0, sum(a * b for a, b in zip(row, rgb, strict=True)))) for row in VISION[vision])
    return red, green, blue


def lab(rgb: RGB) -> RGB:
    """Return CIE L*a*b* of linear sRGB under D65."""

    def cube_root(share: float) -> float:
        return share ** (1 / 3) if share > 216 / 24389 else (24389 / 27 * share + 16) / 116

    r, g, b = rgb
    x = cube_root((0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047)
    y = cube_root(0.2126729 * r + 0.7151522 * g + 0.0721750 * b)
    z = cube_root((0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.08883)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def distance(one: RGB, other: RGB) -> float:
    """Return CIEDE2000 of two colours in L*a*b* (Sharma, Wu and Dalal 2005)."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    stretch = 1.5 - 0.5 * math.sqrt(mean**7 / (mean**7 + 25**7))
    c1, c2 = math.hypot(stretch * a1, b1), math.hypot(stretch * a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, stretch * a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    hue = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    middle = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    weights = ((0.17, 1, -30, -1), (0.24, 2, 0, 1), (0.32, 3, 6, 1), (0.2, 4, -63, -1))
    t = 1 + sum(sign * w * math.cos(math.radians(times * middle + more)) for w, times, more, sign in weights)
    sl = 1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2)
    sc, sh = 1 + 0.045 * chroma, 1 + 0.015 * chroma * t
    rotation = 60 * math.exp(-(((middle - 275) / 25) ** 2))
    rt = -2 * math.sqrt(chroma**7 / (chroma**7 + 25**7)) * math.sin(math.radians(rotation))
    parts = ((l2 - l1) / sl, (c2 - c1) / sc, hue / sh)
    return math.sqrt(sum(part**2 for part in parts) + rt * parts[1] * parts[2])


def contrast(one: str, other: str) -> float:
    """Return the contrast of WCAG 2."""
    low, high = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(linear, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_the_distance_is_that_of_the_published_examples() -> None:
    assert distance((50, 2.6772, -79.7751), (50, 0, -82.7485)) == pytest.approx(2.0425, abs=1e-4)
    assert distance((50, 2.5, 0), (73, 25, -18)) == pytest.approx(27.1492, abs=1e-4)
    assert distance((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514)) == pytest.approx(0.9082, abs=1e-4)


@pytest.mark.parametrize(("vision", "theme"), list(product(VISION, (0, 1))))
def test_systems_are_told_apart_by_colour_alone(vision: str, theme: int) -> None:
    pairs = combinations([lab(seen(colour[theme], vision)) for colour in SYSTEMS], 2)
    assert min(distance(*pair) for pair in pairs) > LEAST[vision]


def test_many_systems_differ_in_colour_or_shape() -> None:
    looks = [(style.colour, style.shape) for style in map(palette.style_of, range(palette.MOST_SYSTEMS))]
    assert len(set(looks)) == palette.MOST_SYSTEMS
    assert len({palette.system_class(number) for number in range(palette.MOST_SYSTEMS)}) == palette.MOST_SYSTEMS


@pytest.mark.parametrize("theme", [0, 1])
def test_marks_and_words_are_legible(theme: int) -> None:
    page, ahead = COLOURS["bg"][theme], COLOURS["ahead"][theme]
    assert min(contrast(colour[theme], page) for colour in SYSTEMS) >= 3
    words = [*WORDS, *(COLOURS[name] for name in ("ink", "muted", "link", "warn"))]
    assert min(contrast(colour[theme], page) for colour in words) >= 4.5
    assert min(contrast(colour[theme], ahead) for colour in WORDS) >= 4.5
    assert contrast(COLOURS["warn"][theme], COLOURS["warn-bg"][theme]) >= 4.5


def test_a_style_sheet_has_every_look_in_both_themes() -> None:
    style = palette.style_sheet()
    for colour in (*SYSTEMS, *WORDS, *COLOURS.values()):
        assert isinstance(colour, Colour) and colour.light in style and colour.dark in style
    assert all(f".m-{look}{{" in style for look in palette.LOOKS)
    for attributes in palette.LOOKS.values():
        assert attributes.get("fill", "none") in {*COLOURS, "none", "c", "t"}


def test_a_file_for_a_paper_has_no_variables() -> None:
    for look in palette.LOOKS:
        for system in (None, 0, 7):
            assert not any("var(" in value or value in COLOURS for value in palette.literal(look, system).values())


def test_a_box_hides_one_system() -> None:
    rules = palette.filter_rules(2)
    assert rules.count("display:none") == 2 and "#show-y1:not(:checked)" in rules and "#show-y3" not in rules
