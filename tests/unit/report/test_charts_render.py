"""Charts as SVG in a page and as files for papers: themed, described, linked, and the same bytes each time."""

import re
import struct
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from sifmark.report.charts import axes, theme
from sifmark.report.charts.chart import Chart, ChartTable
from sifmark.report.charts.glyphs import Curve, Datum, Failed, Printed, curves, failures, layered, published
from sifmark.report.charts.render import COLUMN, LONGEST_TEXT, PAGE, page_svg, paper_files
from sifmark.report.charts.theme import style_of

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = (
    "<script>alert(1)</script>",
    "</title></svg><img src=x onerror=alert(1)>",
    "\" onload='x",
    "control \x00\x07\x1b[31m\n characters",
    "lone \ud800 surrogate",
    "right to left \u202e\u05e9\u05dc\u05d5\u05dd",
    "\u65e5\u672c\u8a9e",
    "x" * 10_000,
    "{{7 * 7}} ${1} datum.x",
    "",
)


def chart(labels: tuple[str, ...] = ("alpha", "beta"), name: str = "sample", href: str = "#result-1") -> Chart:
    lines = [
        Curve(
            label,
            style_of(place),
            tuple(
                Datum(x, 10.0 * x + place, 9.0 * x, 11.0 * x, (9.5 * x, 10.5 * x), f"{label}, batch {x}", href)
                for x in (8, 16, 32)
            ),
        )
        for place, label in enumerate(labels)
    ]
    values = [mark.y for line in lines for mark in line.marks]
    layers = [
        *curves(lines),
        *failures([Failed(64, style_of(0), f"{labels[0]}: out of memory", href)]),
        *published([Printed(16, 100.0, 120.0, "study", "published: 100 to 120", "https://example.org/paper")]),
    ]
    spec = layered(axes.doubling("batch size", [8, 16, 32, 64]), axes.quantity("rate", "images/s", values), *layers)
    return Chart(name, f"Chart of {labels[0]}", "", spec, ChartTable((), ()))


def drawn(labels: tuple[str, ...] = ("alpha", "beta"), **more: str) -> ElementTree.Element:
    return ElementTree.fromstring(page_svg(chart(labels, **more)))


def test_a_chart_in_a_page_is_as_wide_as_what_is_around_it() -> None:
    root = drawn()
    assert root.get("width") == "100%" and root.get("viewBox") and root.get("height") is None


def test_a_chart_wider_than_a_column_is_wide_on_pages_and_papers() -> None:
    narrow = chart()
    wide = replace(narrow, spec={**narrow.spec, "width": 900})
    width, _ = struct.unpack(">II", paper_files(wide)["sample.png"][16:24])
    assert abs(width - PAGE / 25.4 * 300) < 2


def test_every_mark_with_a_description_has_it_as_its_title_and_accessible_name() -> None:
    titles = [element for element in drawn().iter() if element.find(f"{SVG}title") is not None]
    texts = [element.findtext(f"{SVG}title") for element in titles]
    assert texts.count("alpha, batch 16") == 1
    assert {"alpha: out of memory", "published: 100 to 120"} <= set(texts)
    assert all(element.get("role") == "graphics-symbol" for element in titles)


def test_marks_lead_to_results_and_to_sources() -> None:
    links = [element.get("href") for element in drawn().iter(f"{SVG}a")]
    assert set(links) == {"#result-1", "https://example.org/paper"}


@pytest.mark.parametrize("href", ["javascript:alert(1)", "data:text/html,x", "//elsewhere", "vbscript:x", "file:///x"])
def test_other_addresses_are_no_links(href: str) -> None:
    assert [element.get("href") for element in drawn(href=href).iter(f"{SVG}a")] == ["https://example.org/paper"]


def test_colours_follow_the_page() -> None:
    text = page_svg(chart())
    used = set(re.findall(r'(?:fill|stroke)="([^"]+)"', text))
    assert used <= {theme.variable(colour) for colour in theme.COLOURS} | {"none"}
    assert theme.variable(theme.SYSTEMS[0]) in used and theme.variable(theme.INK) in used
    defined = theme.page_style()
    assert all(defined.count(f"--chart-{colour.name}:") == 2 for colour in theme.COLOURS)


def test_nothing_in_a_page_needs_a_style_a_script_or_the_network() -> None:
    root = drawn()
    for element in root.iter():
        assert element.tag.removeprefix(SVG) not in ("script", "style", "image", "foreignObject", "use")
        assert not [name for name in element.attrib if name == "style" or name.startswith("on")]


def test_ids_of_two_charts_differ_and_do_not_depend_on_what_was_drawn_before() -> None:
    first, second = page_svg(chart(name="one-a")), page_svg(chart(name="two-b"))
    assert page_svg(chart(name="one-a")) == first
    ids = [set(re.findall(r'id="([^"]+)"', text)) for text in (first, second)]
    assert ids[0] and not ids[0] & ids[1]
    assert all(set(re.findall(r"url\(#([^)]+)\)", text)) <= own for text, own in zip((first, second), ids, strict=True))


@pytest.mark.parametrize("label", HOSTILE)
def test_no_text_breaks_out_of_a_chart(label: str) -> None:
    root = drawn((label, "beta"))
    names = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert names <= {"svg", "g", "path", "line", "text", "title", "a", "rect", "defs", "clipPath"}
    longest = max(
        len(value) for element in root.iter() for value in (element.text or "", element.get("aria-label", ""))
    )
    assert longest <= LONGEST_TEXT


def test_files_for_papers_are_as_wide_as_a_column_and_light() -> None:
    files = paper_files(chart())
    assert set(files) == {"sample.svg", "sample.png", "sample.pdf"}
    width, _ = struct.unpack(">II", files["sample.png"][16:24])
    assert abs(width - COLUMN / 25.4 * 300) < 2
    box = re.search(rb"/MediaBox \[0 0 ([\d.]+) ", files["sample.pdf"])
    assert box and abs(float(box[1]) - COLUMN / 25.4 * 72) < 0.1
    svg = files["sample.svg"].decode()
    assert "var(" not in svg and "<a " not in svg and theme.SYSTEMS[0].light in svg


def test_pictures_for_papers_are_the_same_bytes_each_time() -> None:
    first, second = (paper_files(chart()) for _ in range(2))
    assert [first[name] == second[name] for name in ("sample.svg", "sample.png")] == [True, True]


def contrast(colour: str, ground: str) -> float:
    def light(text: str) -> float:
        parts = [int(text[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    brighter, darker = sorted((light(colour), light(ground)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def test_colours_can_be_told_from_the_page_and_text_can_be_read() -> None:
    for colour in theme.SYSTEMS:
        assert contrast(colour.light, theme.PAPER.light) >= 3, colour
        assert contrast(colour.dark, theme.PAPER.dark) >= 3, colour
    for colour in (theme.INK, theme.MUTED):
        assert contrast(colour.light, theme.PAPER.light) >= 4.5 and contrast(colour.dark, theme.PAPER.dark) >= 4.5


def test_colour_is_never_the_only_difference_of_systems() -> None:
    styles = [style_of(system) for system in range(16)]
    assert len({(style.colour.name, style.shape) for style in styles}) == 16
    assert len({style.shape for style in styles[:8]}) == len({style.dash for style in styles[:8]}) == 8
